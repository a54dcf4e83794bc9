#include "control/events.h"
#include "control/rest.h"
#include "control/tool.h"
#include "control/view.h"

#include "base/clock.h"
#include "base/mem.h"
#include "http/url.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct rows {
        struct rest *r;
        struct jw w;
};

static void write_row(struct jw *w, struct rest *r, const struct box_row *row)
{
        jw_obj(w);
        tool_write_box(w, r->c, row, r->who);
        jw_key(w, "repos");
        jw_raw(w, str_of(row->repos));
        life_write(w, r->c, row);
        view_box(w, r->c, row);
        if (row->why)
                jw_kstr(w, "statusReason", row->why);
        jw_end(w);
}

static int add_row(const struct box_row *row, void *arg)
{
        struct rows *rows = arg;

        write_row(&rows->w, rows->r, row);
        return 0;
}

void coroutine_fn rest_boxes_list(struct rest *r)
{
        _cleanup_buf_ struct buf b = BUF_MAX(4 << 20), all = BUF_MAX(8);
        struct rows rows = { .r = r };

        bool ended = call_query(r->call, "all", &all) == 1 && str_eq(buf_str(&all), STR("true"));
        jw_init(&rows.w, &b);
        jw_obj(&rows.w);
        jw_karr(&rows.w, "boxes");
        (void) boxes_each(r->c->db, r->who->account, ended, 1000, add_row, &rows);
        if (jw_end_all(&rows.w) < 0)
                (void) call_reply_error(r->call, 500, "internal", "the list did not fit into an answer");
        else
                (void) call_reply(r->call, 200, "application/json", b.p, b.len);
}

void coroutine_fn rest_boxes_get(struct rest *r)
{
        _cleanup_buf_ struct buf b = BUF_MAX(1 << 20);
        struct box_row row = { 0 };
        struct err e = { 0 };
        struct jw w;
        int code = boxes_get(r->c->db, r->who->account, r->id, &row, &e);

        if (code < 0) {
                rest_fail(r, code, &e);
                return;
        }
        jw_init(&w, &b);
        write_row(&w, r, &row);
        box_row_done(&row);
        (void) jw_end_all(&w);
        (void) call_reply(r->call, 200, "application/json", b.p, b.len);
}

static bool coroutine_fn presence_client(struct rest *r, char client[65])
{
        _cleanup_buf_ struct buf body = BUF_MAX(4096);
        _cleanup_json_ struct json *j = NULL;
        struct err e = { 0 };

        client[0] = '\0';
        if (!agent_id_ok(r->id)) {
                (void) call_reply_error(r->call, 400, "invalid", "an agent id is 1 to 64 letters, digits, _ or -");
                return false;
        }
        int code = call_read_all(r->call, &body, &e);
        if (code == 0 && body.len)
                code = json_parse(body.p, body.len, &j, &e);
        const struct json *name = json_get(j, "client");
        if (code == 0 && j && (json_type(j) != JSON_OBJECT || (name && json_type(name) != JSON_STRING)))
                code = err_set(&e, -EINVAL, "the body is an object such as {\"client\": \"name/version\"}");
        if (code < 0) {
                rest_fail(r, code, &e);
                return false;
        }
        const char *given = json_get_str(j, "client", r->who->client);
        (void) snprintf(client, 65, "%.64s", given);
        return true;
}

void coroutine_fn rest_heartbeat(struct rest *r)
{
        char client[65];

        if (!presence_client(r, client))
                return;
        (void) agents_heartbeat(r->c->db, r->who->account, r->id, client[0] ? client : NULL);
        events_agent(r->c->events, r->who->account, r->id);
        (void) call_reply(r->call, 200, "application/json", "{\"ok\":true}", 11);
}

void coroutine_fn rest_leave(struct rest *r)
{
        char client[65];

        if (!presence_client(r, client))
                return;
        (void) agents_left(r->c->db, r->who->account, r->id);
        events_agent(r->c->events, r->who->account, r->id);
        (void) call_reply(r->call, 200, "application/json", "{\"ok\":true}", 11);
}

/* ---- downloads ---- */

/* One range of bytes (RFC 9110 §14.1.2): 1 usable, 0 none given or not understood (then the whole is sent), -ERANGE. */
static int parse_range(struct str v, int64_t size, int64_t *from, int64_t *to)
{
        uint64_t a = 0, b = 0;

        if (!v.p || !str_starts(v, STR("bytes=")) || memchr(v.p, ',', v.n))
                return 0;
        v = str_n(v.p + 6, v.n - 6);
        struct str first = str_cut(&v, '-');
        if (first.n == 0) { /* the last n bytes */
                if (parse_u64(v, INT64_MAX, &b) < 0)
                        return 0;
                if (b == 0 || size == 0)
                        return -ERANGE;
                *from = (int64_t) b >= size ? 0 : size - (int64_t) b;
                *to = size - 1;
                return 1;
        }
        if (parse_u64(first, INT64_MAX, &a) < 0)
                return 0;
        b = (uint64_t) size - 1;
        if (v.n && (parse_u64(v, INT64_MAX, &b) < 0 || b < a))
                return 0;
        if ((int64_t) a >= size)
                return -ERANGE;
        *from = (int64_t) a;
        *to = (int64_t) b < size ? (int64_t) b : size - 1;
        return 1;
}

static int coroutine_fn send_bytes(struct call *call, int fd, int64_t from, int64_t n)
{
        const size_t size = 64 << 10;
        _cleanup_free_ char *p = xmalloc(size);

        while (n > 0) {
                ssize_t got = pread(fd, p, min_size(size, (size_t) n), (off_t) from);

                if (got <= 0)
                        return got < 0 ? -errno : -EIO;
                int r = call_write(call, p, (size_t) got);
                if (r < 0)
                        return r;
                from += got;
                n -= got;
        }
        return 0;
}

/* RFC 6266: a name that every client reads, and beside it the real one. */
static void add_disposition(struct call *call, const char *name)
{
        _cleanup_buf_ struct buf v = BUF_MAX(2048);

        (void) buf_adds(&v, "attachment; filename=\"");
        for (const char *p = name; *p; p++)
                if (*p >= 0x20 && *p < 0x7f && *p != '"' && *p != '\\' && *p != '%')
                        (void) buf_addc(&v, *p);
                else if (((unsigned char) *p & 0xc0) != 0x80)
                        (void) buf_addc(&v, '_');
        (void) buf_adds(&v, "\"; filename*=UTF-8''");
        (void) url_encode(&v, str_of(name));
        (void) call_add_header(call, "Content-Disposition", buf_cstr(&v));
}

static void coroutine_fn send_object(struct call *call, int fd, const struct object_row *row)
{
        int64_t from = 0, to = row->bytes - 1;
        int ranged = parse_range(call_header(call, "Range"), row->bytes, &from, &to);
        char value[96];

        (void) call_add_header(call, "Accept-Ranges", "bytes");
        (void) call_add_header(call, "Cache-Control", "private, max-age=0");
        /* Bytes from a box are hostile: never rendered on our origin, always saved. */
        add_disposition(call, row->name);
        (void) call_add_header(call, "Content-Security-Policy", "sandbox; default-src 'none'");
        if (ranged < 0) {
                (void) snprintf(value, sizeof value, "bytes */%lld", (long long) row->bytes);
                (void) call_add_header(call, "Content-Range", value);
                (void) call_reply_error(call, 416, "range", "the range lies outside of the file's %lld bytes",
                                        (long long) row->bytes);
                return;
        }
        if (ranged) {
                (void) snprintf(value, sizeof value, "bytes %lld-%lld/%lld", (long long) from, (long long) to,
                                (long long) row->bytes);
                (void) call_add_header(call, "Content-Range", value);
        }
        int64_t n = row->bytes ? to - from + 1 : 0;
        if (call_start(call, ranged ? 206 : 200, row->type, n) == 0 && !str_eq(call_method(call), STR("HEAD")))
                (void) send_bytes(call, fd, from, n);
}

void coroutine_fn rest_blob(struct control *c, struct call *call)
{
        _cleanup_buf_ struct buf expires = BUF_MAX(32), signature = BUF_MAX(64);
        struct str path = call_path(call);
        struct object_row row;
        struct err e = { 0 };
        char id[32];

        path = str_n(path.p + strlen("/v1/blobs/"), path.n - strlen("/v1/blobs/"));
        struct str object = str_cut(&path, '/');
        if (!str_eq(call_method(call), STR("GET")) && !str_eq(call_method(call), STR("HEAD"))) {
                (void) call_add_header(call, "Allow", "GET, HEAD");
                (void) call_reply_error(call, 405, "method_not_allowed", "this address takes GET and HEAD");
                return;
        }
        int r = -EACCES;
        if (call_query(call, "exp", &expires) == 1 && call_query(call, "sig", &signature) == 1)
                r = link_check(c, object, buf_str(&expires), buf_str(&signature));
        if (r < 0) {
                (void) call_reply_error(call, r == -ETIME ? 410 : 403, r == -ETIME ? "expired" : "forbidden",
                                        r == -ETIME ? "this link is over: call sandbox_get again for a fresh one"
                                                    : "this link is not valid");
                return;
        }
        (void) snprintf(id, sizeof id, "%.*s", (int) object.n, object.p);
        _cleanup_close_ int fd = object_read(c->objects, id, &row, &e);
        if (fd < 0)
                (void) call_reply_error(call, 404, "not_found", "%s", err_text(&e));
        else
                send_object(call, fd, &row);
}
