#include "base/log.h"
#include "base/utf8.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#define LINE_MAX_BYTES 2048

static const char *const names[] = { "error", "warning", "info", "debug" };

static char program_name[64] = "psbx";
static enum log_level max_level = LOG_LEVEL_INFO;

void log_setup(const char *program, enum log_level max)
{
        (void) snprintf(program_name, sizeof program_name, "%s", program);
        max_level = max;
}

int log_level_parse(const char *s, enum log_level *ret)
{
        for (size_t i = 0; s && i < ARRAY_LEN(names); i++)
                if (cstr_eq(s, names[i])) {
                        *ret = (enum log_level) i;
                        return 0;
                }
        return -EINVAL;
}

bool log_enabled(enum log_level l)
{
        return l <= max_level;
}

/* C0, DEL and C1 steer terminals or end the line. */
static bool is_control(const unsigned char *p, size_t len)
{
        return (len == 1 && (p[0] < 0x20 || p[0] == 0x7f)) || (len == 2 && p[0] == 0xc2 && p[1] < 0xa0);
}

/* One character of s in printable form into out (at most 9 bytes with the NUL); returns the bytes taken from s. */
static size_t escape(struct str s, char out[9])
{
        const unsigned char *p = (const unsigned char *) s.p;
        size_t len = utf8_seq(s);

        if (len && !is_control(p, len)) {
                memcpy(out, p, len);
                out[len] = '\0';
                return len;
        }
        if (p[0] == '\n' || p[0] == '\r' || p[0] == '\t') {
                (void) snprintf(out, 9, "\\%c", p[0] == '\n' ? 'n' : p[0] == '\r' ? 'r' : 't');
                return 1;
        }
        (void) snprintf(out, 9, "\\x%02x", p[0]);
        if (len == 2)
                (void) snprintf(out + 4, 5, "\\x%02x", p[1]);
        return len == 2 ? 2 : 1;
}

static size_t append(char *line, size_t used, struct str msg)
{
        static const char cut[] = "...";
        size_t end = LINE_MAX_BYTES - 1; /* the line break */
        size_t safe = used;              /* where the mark still fits */

        while (msg.n) {
                char c[9];
                size_t taken = escape(msg, c);
                size_t len = strlen(c);

                if (used + len > end) {
                        memcpy(line + safe, cut, sizeof cut - 1);
                        return safe + sizeof cut - 1;
                }
                memcpy(line + used, c, len);
                used += len;
                if (used + sizeof cut - 1 <= end)
                        safe = used;
                msg = str_n(msg.p + taken, msg.n - taken);
        }
        return used;
}

void log_at(enum log_level l, const char *fmt, ...)
{
        char msg[LINE_MAX_BYTES + 1], line[LINE_MAX_BYTES];
        int saved = errno;
        va_list ap;

        if (!log_enabled(l))
                return;
        va_start(ap, fmt);
        int n = vsnprintf(msg, sizeof msg, fmt, ap);
        va_end(ap);
        if (n < 0)
                msg[0] = '\0';
        int head = snprintf(line, sizeof line, "%s: %s: ", program_name, names[l]);
        size_t used = append(line, (size_t) head, str_of(msg));
        line[used++] = '\n';
        /* One write keeps lines whole among processes that share the descriptor; a lost line is no failure. */
        (void) !write(STDERR_FILENO, line, used);
        errno = saved;
}
