#include "base/file.h"
#include "base/mem.h"
#include "loop/loop.h"
#include "sync/extract.h"
#include "sync/par.h"
#include "sync/place.h"
#include "sync/rest.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define PIECE ((size_t) 256 << 10)
#define PATHS_SHOWN 50
#define CONNECT_MS 10000
#define SINGLE "file"

struct pull {
        const struct sync_env *env;
        const char *id, *path, *local;
        bool extract, clean;
        struct json *meta; /* what sandbox_get told */
        struct place place;
        struct extract *x;
        int fd; /* of a single file */
        uint64_t bytes;
        bool is_error_result; /* sandbox_get's own error text is in text */
        struct buf text;
};

/* One piece on its way to the disk, on the pool. */
struct store_job {
        struct pull *p;
        struct buf *data;
        int r;
        struct err e;
};

static int store(void *arg)
{
        struct store_job *j = arg;

        if (j->p->x)
                j->r = extract_feed(j->p->x, j->data->p, j->data->len, &j->e);
        else if ((j->r = fd_write_all(j->p->fd, j->data->p, j->data->len)) < 0)
                (void) err_sys(&j->e, j->r, "cannot write %.200s", j->p->place.target);
        return 0;
}

static void coroutine_fn store_task(void *arg)
{
        (void) offload(store, arg);
}

/* Fills b up to a piece: 1 with more to come, 0 at the end, -errno. */
static int coroutine_fn read_piece(struct hc *x, struct watch *w, struct buf *b)
{
        buf_clear(b);
        while (b->len < PIECE) {
                char *p = buf_room(b, PIECE - b->len);
                ssize_t n;

                if (!p)
                        return -ENOMEM;
                n = hc_read(x, p, PIECE - b->len, -1);
                if (n <= 0)
                        return (int) n;
                buf_grew(b, (size_t) n);
                watch_moved(w, (size_t) n);
        }
        return 1;
}

static int coroutine_fn copy_body(struct pull *pl, struct hc *x, struct watch *w, struct err *e)
{
        _cleanup_buf_ struct buf a = BUF_MAX(PIECE), b = BUF_MAX(PIECE);
        struct store_job job = { .p = pl, .data = &b };
        struct buf *next = &a;
        int more = 1;

        while (more > 0) {
                struct par p;
                int joined;

                par_init(&p);
                if (job.data->len)
                        par_start(&p, store_task, &job);
                more = read_piece(x, w, next);
                joined = par_join(&p);
                if (job.r < 0)
                        return err_set(e, job.r, "%s", job.e.msg);
                if (more < 0 || joined < 0)
                        return more < 0 ? more : joined;
                struct buf *done = job.data;
                job.data = next;
                next = done;
                pl->bytes += job.data->len;
        }
        (void) offload(store, &job);
        return job.r < 0 ? err_set(e, job.r, "%s", job.e.msg) : 0;
}

static bool same_origin(const struct url *a, const struct url *b)
{
        return a->https == b->https && a->port == b->port && strcmp(a->host, b->host) == 0;
}

/* 0, 1 when the link is refused (403, 410), -errno. The link is its own permission: no key goes with it. */
static int coroutine_fn fetch_from(struct pull *pl, struct http_client *http, const struct url *u, bool *lost,
                                   struct err *e)
{
        const char *const headers[] = { "Accept-Encoding", "identity", NULL };
        const struct http_request req = {
                .method = "GET", .path = u->path, .headers = headers, .connect_ms = CONNECT_MS
        };
        _cleanup_(hc_closep) struct hc *x = NULL;
        struct watch w;
        int r = hc_open(http, &req, &x, NULL, e);

        *lost = false;
        if (r < 0)
                return r;
        watch_start(&w, pl->env, x, "downloading", pl->env->stall_ms);
        w.total = (uint64_t) json_get_int(pl->meta, "bytes", 0);
        r = hc_answer(x, e);
        if (r == 0 && (hc_status(x) == 403 || hc_status(x) == 410))
                r = 1;
        else if (r == 0 && hc_status(x) != 200)
                r = err_set(e, -EIO, "the download link answered HTTP %u", hc_status(x));
        else if (r == 0)
                r = copy_body(pl, x, &w, e);
        watch_stop(&w);
        if (r >= 0 || (r == -ECANCELED && coro_cancelled()) || e->code)
                return r;
        if (w.stalled)
                return err_set(e, -ETIMEDOUT, "no byte came for %lld seconds", (long long) (w.limit_ms + 999) / 1000);
        *lost = true;
        return err_sys(e, r, "the download broke after %llu bytes", (unsigned long long) pl->bytes);
}

static int coroutine_fn fetch(struct pull *pl, bool *lost, struct err *e)
{
        const char *link = json_get_str(pl->meta, "url", "");
        struct http_client *own = NULL;
        struct url u;
        int r;

        *lost = false;
        r = url_parse(link, &u, e);
        if (r < 0)
                return err_wrap(e, "sandbox_get gave a link that cannot be used");
        if (!same_origin(&u, &pl->env->base))
                own = http_client_new(&u);
        r = fetch_from(pl, own ? own : pl->env->http, &u, lost, e);
        if (own)
                http_client_free(own);
        return r;
}

static void take_error_text(struct pull *pl, const struct json *result)
{
        const struct json *first = json_at(json_get(result, "content"), 0);

        pl->is_error_result = true;
        pl->text = BUF_MAX((size_t) 1 << 20);
        (void) buf_adds(&pl->text, json_get_str(first, "text", "sandbox_get failed without a reason"));
}

static int coroutine_fn ask_link(struct pull *pl, struct err *e)
{
        _cleanup_json_ struct json *result = NULL;
        struct json *args = json_obj();
        int r;

        json_unref(steal_ptr(pl->meta));
        json_set_str(args, "id", pl->id);
        json_set_str(args, "path", pl->path);
        r = pl->env->call_tool(pl->env->arg, "sandbox_get", args, &result, e);
        if (r < 0)
                return r;
        if (json_get_bool(result, "isError", false)) {
                take_error_text(pl, result);
                return 1;
        }
        if (json_get(result, "structuredContent")) {
                pl->meta = json_ref(json_get(result, "structuredContent"));
        } else {
                struct str text = json_strn(json_get(json_at(json_get(result, "content"), 0), "text"));
                r = json_parse(text.p, text.n, &pl->meta, e);
                if (r < 0)
                        return err_wrap(e, "sandbox_get's result");
        }
        return json_get_str(pl->meta, "url", NULL) ? 0 : err_set(e, -EPROTO, "sandbox_get gave no download link");
}

static bool is_archive(const struct pull *pl)
{
        const struct json *a = json_get(pl->meta, "archive");

        return json_type(a) == JSON_STRING ? json_strn(a).n > 0 : json_bool(a);
}

/* An empty staging folder and a sink for the bytes; again for every attempt. */
static int prepare(struct pull *pl, struct err *e)
{
        extract_free(steal_ptr(pl->x));
        if (pl->fd >= 0)
                closep(&pl->fd);
        pl->fd = -1;
        pl->bytes = 0;
        place_done(&pl->place);
        int r = place_open(&pl->place, pl->local, pl->env->cwd, e);
        if (r < 0)
                return r;
        if (is_archive(pl) && pl->extract) {
                pl->x = extract_new(pl->place.staging_fd, true);
                return 0;
        }
        pl->fd = openat(pl->place.staging_fd, SINGLE, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        return pl->fd < 0 ? err_sys(e, -errno, "cannot write beside %.300s", pl->place.target) : 0;
}

static int coroutine_fn download(struct pull *pl, struct err *e)
{
        bool lost = false;
        int r;

        for (int try = 0;; try++) {
                *e = (struct err){ 0 };
                r = ask_link(pl, e);
                if (r != 0)
                        return r;
                r = prepare(pl, e);
                if (r < 0)
                        return r;
                r = fetch(pl, &lost, e);
                if (r == 1 && try > 0)
                        return err_set(e, -EACCES, "the download link was refused, a fresh one too");
                if (r == 0 || try > 0 || (r < 0 && !lost))
                        return r;
        }
}

static int finish(void *arg)
{
        struct store_job *j = arg;
        struct pull *pl = j->p;

        if (pl->x) {
                j->r = extract_finish(pl->x, &j->e);
                if (j->r == 0)
                        j->r = pl->clean ? place_swap(&pl->place, &j->e) : place_merge(&pl->place, &j->e);
                /* Here, not on the loop: after a swap this is the whole old tree. */
                (void) remove_tree(AT_FDCWD, pl->place.staging);
                return 0;
        }
        if (close(steal_fd(&pl->fd)) < 0)
                j->r = err_sys(&j->e, -errno, "cannot write %.200s", pl->place.target);
        else
                j->r = place_file(&pl->place, SINGLE, &j->e);
        return 0;
}

static void write_list(struct jw *w, const struct buf *list, size_t max)
{
        size_t n = 0;

        jw_arr(w);
        for (size_t at = 0; at < list->len && n < max; at += strlen(list->p + at) + 1, n++)
                jw_str(w, list->p + at);
        jw_end(w);
}

static void write_notes(struct jw *w, const struct pull *pl)
{
        jw_karr(w, "notes");
        if (pl->x)
                for (size_t at = 0; at < extract_refused(pl->x)->len;
                     at += strlen(extract_refused(pl->x)->p + at) + 1) {
                        _cleanup_free_ char *text = xasprintf("Not written: %s", extract_refused(pl->x)->p + at);
                        jw_str(w, text);
                }
        for (size_t at = 0; at < pl->place.notes.len; at += strlen(pl->place.notes.p + at) + 1)
                jw_str(w, pl->place.notes.p + at);
        if (pl->clean && !pl->x)
                jw_str(w, "clean has no meaning for one file: the file was replaced.");
        jw_end(w);
}

static int write_result(const struct pull *pl, struct buf *out)
{
        static const struct buf none;
        const struct json *changing = json_get(pl->meta, "changedWhileReading");
        struct jw w;

        jw_init(&w, out);
        jw_obj(&w);
        jw_kbool(&w, "ok", true);
        jw_kstr(&w, "localPath", pl->place.target);
        jw_kint(&w, "bytes", (int64_t) pl->bytes);
        jw_kbool(&w, "extracted", pl->x != NULL);
        jw_kint(&w, "files", pl->x ? (int64_t) extract_files(pl->x) : 1);
        jw_key(&w, "paths");
        write_list(&w, pl->x ? extract_paths(pl->x) : &none, PATHS_SHOWN);
        if (pl->clean && pl->x) {
                jw_kint(&w, "removed", (int64_t) pl->place.removed);
                jw_key(&w, "removedPaths");
                write_list(&w, &pl->place.removed_paths, PATHS_SHOWN);
        }
        if (json_len(changing)) {
                jw_key(&w, "changedWhileReading");
                jw_json(&w, changing);
        }
        write_notes(&w, pl);
        return jw_end_all(&w);
}

static int get_flag(const struct json *args, const char *key, bool def, bool *ret, struct err *e)
{
        const struct json *v = json_get(args, key);

        *ret = v ? json_bool(v) : def;
        if (v && json_type(v) != JSON_BOOL)
                return err_set(e, -EINVAL, "`%s` must be true or false, got %s", key, json_type_name(v));
        return 0;
}

static int parse_args(struct pull *pl, const struct json *args, struct err *e)
{
        int r = json_need_str(args, "id", &pl->id, e);

        if (r == 0)
                r = json_need_str(args, "path", &pl->path, e);
        if (r == 0)
                r = json_need_str(args, !json_get(args, "localPath") && json_get(args, "dest") ? "dest" : "localPath",
                                  &pl->local, e);
        if (r == 0)
                r = get_flag(args, "extract", true, &pl->extract, e);
        if (r == 0)
                r = get_flag(args, "clean", false, &pl->clean, e);
        if (r == 0 && (!pl->local[0] || pl->local[0] == '~'))
                r = err_set(e, -EINVAL, "`localPath` must be an absolute path, got \"%.200s\" (~ is not expanded)",
                            pl->local);
        return r;
}

/* Refused before anything is fetched. */
static int check_clean(struct pull *pl, struct err *e)
{
        int r;

        if (!pl->clean)
                return 0;
        r = place_open(&pl->place, pl->local, pl->env->cwd, e);
        return r < 0 ? r : place_may_clean(&pl->place, e);
}

static int coroutine_fn run(struct pull *pl, struct err *e)
{
        struct store_job job = { .p = pl };
        int r = check_clean(pl, e);

        if (r == 0)
                r = download(pl, e);
        if (r != 0)
                return r;
        (void) offload(finish, &job);
        return job.r < 0 ? err_set(e, job.r, "%s", job.e.msg) : 0;
}

int coroutine_fn pull_run(const struct sync_env *env, const struct json *args, struct buf *out)
{
        struct pull pl = { .env = env, .fd = -1, .place = { .staging_fd = -1 } };
        struct err e = { 0 };
        int r = parse_args(&pl, args, &e);

        buf_clear(out);
        if (r == 0)
                r = run(&pl, &e);
        if (r == 0)
                r = write_result(&pl, out);
        else if (r == 1 && pl.is_error_result)
                (void) buf_addstr(out, buf_str(&pl.text));
        else if (!(r == -ECANCELED && coro_cancelled())) {
                (void) buf_addf(out, "sandbox_pull: %s%s", err_text(&e),
                                pl.local && !strstr(e.msg, "Nothing was changed") ? ". localPath is as it was." : "");
                r = 1;
        }
        extract_free(pl.x);
        if (pl.fd >= 0)
                closep(&pl.fd);
        place_done(&pl.place);
        json_unref(pl.meta);
        buf_done(&pl.text);
        return r;
}
