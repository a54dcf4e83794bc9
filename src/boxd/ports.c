#include "boxd/ports.h"

#include "base/mem.h"
#include "base/str.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static int hex_value(struct str s)
{
        int v = 0;

        for (size_t i = 0; i < s.n; i++) {
                char c = s.p[i];
                int d = c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;

                if (d < 0 || v > 0xffff)
                        return -1;
                v = v * 16 + d;
        }
        return s.n ? v : -1;
}

bool port_line_listens(const char *line, size_t n, int port)
{
        struct str rest = str_trim(str_n(line, n), " "), field;

        str_cut(&rest, ' ');         /* "0:" */
        field = str_cut(&rest, ' '); /* "0100007F:1F90" */
        str_cut(&field, ':');
        if (hex_value(field) != port)
                return false;
        str_cut(&rest, ' ');
        return str_eq(str_cut(&rest, ' '), STR("0A"));
}

static bool in_file(const char *path, int port)
{
        _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
        char text[8192];
        size_t have = 0;

        while (fd >= 0) {
                ssize_t n = read(fd, text + have, sizeof(text) - have);

                if (n <= 0)
                        return false;
                have += (size_t) n;
                struct str all = str_n(text, have);
                while (all.n && memchr(all.p, '\n', all.n)) {
                        struct str line = str_cut(&all, '\n');

                        if (port_line_listens(line.p, line.n, port))
                                return true;
                }
                have = all.n;
                memmove(text, all.p, have);
                if (have == sizeof(text))
                        return false;
        }
        return false;
}

bool port_listens(int port)
{
        return in_file("/proc/net/tcp", port) || in_file("/proc/net/tcp6", port);
}
