/* Runs the files of the folders given as arguments through a fuzz target, so that the corpus is a plain test. */
#include "base/file.h"
#include "fuzz.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>

#define FILE_MAX_BYTES (16u << 20)

static int replay_file(int folder, const char *name)
{
        _cleanup_buf_ struct buf b = BUF_MAX(FILE_MAX_BYTES);
        int r = file_read(folder, name, &b);

        if (r < 0)
                return r;
        /* Said before the run: a crash must tell its input. An exact copy makes a read past the end visible. */
        (void) printf("%s\n", name);
        (void) fflush(stdout);
        _cleanup_free_ void *exact = xmemdup(b.p, b.len);
        (void) LLVMFuzzerTestOneInput(exact, b.len);
        return 0;
}

/* The number of files, or -1. */
static int replay_folder(const char *path)
{
        DIR *d = opendir(path);
        int n = 0;

        if (!d)
                return -1;
        for (struct dirent *entry; n >= 0 && (entry = readdir(d));)
                if (entry->d_name[0] != '.')
                        n = replay_file(dirfd(d), entry->d_name) < 0 ? -1 : n + 1;
        (void) closedir(d);
        return n;
}

int main(int argc, char **argv)
{
        for (int i = 1; i < argc; i++) {
                int n = replay_folder(argv[i]);

                /* An empty folder would be a test that tests nothing. */
                if (n <= 0) {
                        (void) fprintf(stderr, "%s: %s\n", argv[i], n < 0 ? "cannot be read" : "no files");
                        return 1;
                }
        }
        return argc > 1 ? 0 : 1;
}
