/* First byte: what the path is; up to the first line break the pattern, the rest the path. */
#include "fuzz.h"

#include "base/mem.h"
#include "sync/glob.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        struct str in = str_n((const char *) data, size), pattern;
        struct globs g = { 0 };
        bool is_dir;

        if (size < 2 || size > 4096)
                return 0;
        is_dir = data[0] & 1;
        in = str_n(in.p + 1, in.n - 1);
        pattern = str_cut(&in, '\n');
        _cleanup_free_ char *text = xstrndup(pattern.p, pattern.n);
        if (globs_add(&g, text, NULL) == 0) {
                bool hit = globs_match(&g, in, is_dir);

                /* What matches a folder covers everything in it. */
                if (hit && in.n && in.n < 4000) {
                        _cleanup_free_ char *below = xasprintf("%.*s/x", (int) in.n, in.p);
                        if (is_dir && strlen(below) == in.n + 2 && !globs_match(&g, str_of(below), false))
                                abort();
                }
        }
        globs_done(&g);
        return 0;
}
