#include "boxd/hosts.h"
#include "boxd/conn.h"
#include "boxd/ops.h"

#include "base/file.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_MAX (1u << 20)
#define BEGIN "# boxd: begin (rewritten by the control server; edit outside of this part)"
#define END "# boxd: end"
#define NAME "/etc/hosts"
#define TEMP "/etc/.hosts.boxd"

bool hosts_name_ok(const char *s)
{
        size_t n = strlen(s);

        for (size_t i = 0; i < n; i++)
                if (!c_is_alnum(s[i]) && s[i] != '-' && s[i] != '.' && s[i] != '_')
                        return false;
        return n > 0 && n <= 253;
}

int hosts_merge(struct buf *out, struct str old, struct str part)
{
        bool closed = str_has(old, STR("\n" END)), inside = false;
        int r = 0;

        while (old.n && r >= 0) {
                struct str line = str_cut(&old, '\n');

                if (str_eq(line, STR(BEGIN))) {
                        inside = closed;
                        continue;
                }
                if (str_eq(line, STR(END))) {
                        inside = false;
                        continue;
                }
                if (inside)
                        continue;
                r = buf_addstr(out, line);
                if (r >= 0)
                        r = buf_addc(out, '\n');
        }
        if (r >= 0 && part.n)
                r = buf_addf(out, "%s\n%.*s%s\n", BEGIN, (int) part.n, part.p, END);
        return r;
}

static int add_entries(struct buf *part, struct json *entries, struct err *e)
{
        if (entries && json_type(entries) != JSON_ARRAY)
                return err_set(e, -EINVAL, "`entries` must be an array, got %s", json_type_name(entries));
        for (size_t i = 0; i < json_len(entries); i++) {
                struct json *one = json_at(entries, i);
                const char *name = json_get_str(one, "name", ""), *address = json_get_str(one, "address", "");
                unsigned char raw[16];

                if (!hosts_name_ok(name))
                        return err_set(e, -EINVAL, "`entries[%zu].name` is no host name: \"%.80s\"", i, name);
                if (inet_pton(AF_INET, address, raw) != 1 && inet_pton(AF_INET6, address, raw) != 1)
                        return err_set(e, -EINVAL, "`entries[%zu].address` is no IP address: \"%.80s\"", i, address);
                if (buf_addf(part, "%s\t%s\n", address, name) < 0)
                        return err_set(e, -E2BIG, "`entries` are too many");
        }
        return 0;
}

static int write_hosts(const struct buf *text)
{
        _cleanup_close_ int fd = open(TEMP, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644);
        int r = fd < 0 ? -errno : fd_write_all(fd, text->p, text->len);

        if (r >= 0 && rename(TEMP, NAME) == 0)
                return 0;
        if (r >= 0)
                r = -errno;
        unlink(TEMP);
        if (r != -EBUSY && r != -EXDEV && r != -EROFS)
                return r;
        /* A container engine mounted this single file: it can be written, not replaced. */
        _cleanup_close_ int direct = open(NAME, O_WRONLY | O_TRUNC | O_CLOEXEC);
        return direct < 0 ? -errno : fd_write_all(direct, text->p, text->len);
}

void op_hosts(int fd, struct json *head)
{
        _cleanup_buf_ struct buf part = BUF_MAX(FILE_MAX), old = BUF_MAX(FILE_MAX), text = BUF_MAX(2 * FILE_MAX);
        struct err e = { 0 };
        struct reply r;

        int n = add_entries(&part, json_get(head, "entries"), &e);
        if (n >= 0) {
                n = file_read(AT_FDCWD, NAME, &old);
                if (n == -ENOENT)
                        n = buf_adds(&old, "127.0.0.1\tlocalhost\n::1\tlocalhost\n");
                if (n >= 0)
                        n = hosts_merge(&text, buf_str(&old), buf_str(&part));
                if (n >= 0)
                        n = write_hosts(&text);
                if (n < 0)
                        err_sys(&e, n, NAME);
        }
        if (n < 0) {
                conn_error(fd, &e);
                return;
        }
        reply_init(&r);
        jw_kint(&r.w, "entries", (int64_t) json_len(json_get(head, "entries")));
        reply_send(&r, fd);
}
