#include "driver/local_wire.h"

#include "base/file.h"
#include "base/ids.h"
#include "base/log.h"
#include "base/map.h"
#include "base/mem.h"
#include "loop/loop.h"
#include "loop/wait.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define MESSAGE_MAX (64u << 10)
#define ANSWER_MS 60000
#define CONNECT_MS 5000
#define BUSY_TRIES 100
#define BUSY_PAUSE_MS 100

/* One request waiting for its answer, on the asking coroutine's stack. */
struct pending {
        struct json *answer;
        int fd; /* that came with it, or -1 */
        int r;  /* -EINPROGRESS until answered */
        struct waitq q;
};

struct local {
        struct driver base;
        char *socket_path, *run_dir;
        int feed_fd;
        struct msgsock *sock; /* NULL while boxhost is away */
        bool closing;
        struct coro *reader;
        struct map *pending; /* request id -> struct pending */
        uint64_t next_id;
        struct waitq ready;
        struct local_wire wire;
        char *oom_file; /* "*" stands for the box; "" when there is none */
};

static struct local *local_of(struct driver *d)
{
        return container_of(d, struct local, base);
}

static int fail_one(struct str key, void *value, void *arg)
{
        struct pending *p = value;

        (void) key;
        (void) arg;
        p->r = -ECONNRESET;
        waitq_wake_all(&p->q);
        return 0;
}

/* fd is that of the message, or -1. */
static void handle_message(struct local *l, const char *p, size_t n, int fd)
{
        struct err e = { 0 };
        _cleanup_json_ struct json *m = NULL;
        _cleanup_close_ int brought = fd;

        if (json_parse(p, n, &m, &e) < 0) {
                log_warning("boxhost sent a broken message: %s", err_text(&e));
                return;
        }
        if (!json_has(m, "id")) {
                const char *box = json_get_str(m, "box", "");

                if (cstr_eq(json_get_str(m, "event", ""), "exited") && l->base.on_exit)
                        l->base.on_exit(box, json_get_str(m, "how", "ended"), l->base.arg);
                if (cstr_eq(json_get_str(m, "event", ""), "images") && l->base.on_images)
                        l->base.on_images(l->base.arg);
                return;
        }
        char key[24];
        int k = snprintf(key, sizeof key, "%lld", (long long) json_get_int(m, "id", -1));
        struct pending *w = map_get(l->pending, str_n(key, (size_t) k));
        if (!w)
                return; /* its caller was cancelled or timed out */
        w->answer = steal_ptr(m);
        w->fd = steal_fd(&brought);
        w->r = 0;
        waitq_wake_all(&w->q);
}

/* Receives one connected boxhost socket from the supervisor: -EPIPE when the supervisor is gone. */
static int receive_fd(int feed)
{
        char byte;
        union {
                char bytes[CMSG_SPACE(sizeof(int))];
                struct cmsghdr align;
        } control;
        struct iovec iov = { &byte, 1 };
        struct msghdr msg = {
                .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control
        };
        ssize_t n = recvmsg(feed, &msg, MSG_CMSG_CLOEXEC);

        if (n < 0)
                return -errno;
        if (n == 0)
                return -EPIPE;
        struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
        if (!c || c->cmsg_type != SCM_RIGHTS)
                return -EPROTO;
        int fd;
        memcpy(&fd, CMSG_DATA(c), sizeof fd);
        return fd;
}

static int blocking_receive(void *arg)
{
        return receive_fd(*(int *) arg);
}

static int connect_path(const char *path)
{
        struct sockaddr_un a = { .sun_family = AF_UNIX };

        if (strlen(path) >= sizeof a.sun_path)
                return -ENAMETOOLONG;
        memcpy(a.sun_path, path, strlen(path) + 1);
        int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        if (fd < 0)
                return -errno;
        if (connect(fd, (struct sockaddr *) &a, sizeof a) < 0) {
                int r = -errno;

                (void) close(fd);
                return r;
        }
        return fd;
}

static int coroutine_fn next_connection(struct local *l)
{
        if (l->feed_fd >= 0)
                return offload(blocking_receive, &l->feed_fd);
        for (;;) {
                int fd = connect_path(l->socket_path);

                if (fd >= 0)
                        return fd;
                log_debug("boxhost at %s: %s", l->socket_path, strerror(-fd));
                if (coro_sleep(500) < 0)
                        return -ECANCELED;
        }
}

static void coroutine_fn wire_main(void *arg);

/* Lives as long as the driver: takes each connection to boxhost in turn and hands out its messages. */
static void coroutine_fn reader_main(void *arg)
{
        struct local *l = arg;
        _cleanup_free_ char *message = xmalloc(MESSAGE_MAX);

        while (!l->closing && !coro_cancelled()) {
                struct err e = { 0 };
                int fd = next_connection(l);

                if (fd < 0) {
                        if (fd != -ECANCELED && !l->closing)
                                log_error("boxhost cannot be reached any more: %s", strerror(-fd));
                        break;
                }
                if (l->closing) {
                        (void) close(fd);
                        break;
                }
                if (msgsock_from_fd(fd, &l->sock, &e) < 0) {
                        log_error("boxhost: %s", err_text(&e));
                        (void) close(fd);
                        continue;
                }
                waitq_wake_all(&l->ready);
                if (l->base.on_ready)
                        l->base.on_ready(l->base.arg);
                (void) coro_start(wire_main, l, CORO_STACK_DEFAULT, "wires");
                ssize_t n;
                while ((n = msgsock_recv_fd(l->sock, message, MESSAGE_MAX, &fd, -1)) > 0)
                        handle_message(l, message, (size_t) n, fd);
                msgsock_close(steal_ptr(l->sock));
                (void) map_each(l->pending, fail_one, NULL);
                if (!l->closing)
                        log_warning("the connection to boxhost ended; waiting for it to come back");
        }
        l->reader = NULL;
}

static int coroutine_fn wait_ready(struct local *l, int64_t timeout_ms, struct err *e)
{
        int64_t until = loop_now() + timeout_ms;

        while (!l->sock) {
                int r = waitq_wait(&l->ready, until - loop_now() > 0 ? until - loop_now() : 0);

                if (r < 0 && !l->sock)
                        return err_set(e, r == -ETIMEDOUT ? -EAGAIN : r,
                                       "boxhost, the program that makes boxes, is not running; nothing was started");
        }
        return 0;
}

/* Sends a request object (consumed) and waits for its answer, and for the descriptor that comes with it: *ret_fd may be
 * -1. */
static int coroutine_fn ask_fd(struct local *l, struct json *request, struct json **ret, int *ret_fd, struct err *e)
{
        _cleanup_json_ struct json *req = request;
        _cleanup_buf_ struct buf text = BUF_MAX(MESSAGE_MAX);
        struct pending w = { .fd = -1, .r = -EINPROGRESS };
        char key[24];
        int r = wait_ready(l, 10000, e);

        if (r < 0)
                return r;
        uint64_t id = ++l->next_id;
        json_set_int(req, "id", (int64_t) id);
        int k = snprintf(key, sizeof key, "%llu", (unsigned long long) id);
        if (json_print(req, &text) < 0)
                return err_set(e, -EMSGSIZE, "request to boxhost is too large");
        waitq_init(&w.q);
        (void) map_put(l->pending, str_n(key, (size_t) k), &w);
        r = msgsock_send(l->sock, text.p, text.len, ANSWER_MS);
        while (r == 0 && w.r == -EINPROGRESS)
                r = waitq_wait(&w.q, ANSWER_MS);
        (void) map_del(l->pending, str_n(key, (size_t) k));
        if (w.r != -EINPROGRESS)
                r = w.r;
        if (ret_fd)
                *ret_fd = w.fd;
        else
                closep(&w.fd);
        if (r < 0)
                return err_set(e, r, "boxhost did not answer %s: %s", json_get_str(req, "op", "?"), strerror(-r));
        const char *error = json_get_str(w.answer, "error", NULL);
        if (error) {
                const char *code = json_get_str(w.answer, "code", "");
                static const struct {
                        const char *name;
                        int code;
                } codes[] = { { "ENOENT", -ENOENT }, { "EEXIST", -EEXIST },      { "ENOSPC", -ENOSPC },
                              { "EINVAL", -EINVAL }, { "ENOTSUP", -EOPNOTSUPP }, { "EBUSY", -EBUSY },
                              { "EMFILE", -EMFILE }, { "ENOMEM", -ENOMEM } };
                r = -EIO;
                for (size_t i = 0; i < ARRAY_LEN(codes); i++)
                        if (cstr_eq(code, codes[i].name))
                                r = codes[i].code;
                (void) err_set(e, r, "%s", error);
                json_unref(w.answer);
                return r;
        }
        if (ret)
                *ret = w.answer;
        else
                json_unref(w.answer);
        return 0;
}

static int coroutine_fn ask(struct local *l, struct json *request, struct json **ret, struct err *e)
{
        return ask_fd(l, request, ret, NULL, e);
}

static struct json *request_for(const char *op, const char *box)
{
        struct json *r = json_obj();

        json_set_str(r, "op", op);
        json_set_str(r, "box", box);
        return r;
}

static int coroutine_fn local_create(struct driver *d, const char *box, const char *image, const char *hostname,
                                     const struct driver_size *size, struct err *e)
{
        struct json *req = request_for("create", box);
        struct json *sz = json_obj();
        _cleanup_json_ struct json *answer = NULL;

        json_set_int(sz, "cpus", size->cpus);
        json_set_int(sz, "memoryBytes", size->memory_bytes);
        json_set_int(sz, "pids", size->pids);
        json_set_int(sz, "diskBytes", size->disk_bytes);
        json_set(req, "size", sz);
        json_set_str(req, "image", image);
        json_set_str(req, "hostname", hostname);
        int r = ask(local_of(d), req, &answer, e);
        if (r == 0)
                local_wire_note(&local_of(d)->wire, json_get_str(answer, "address", ""), box);
        if (r == 0 && log_enabled(LOG_LEVEL_DEBUG)) {
                _cleanup_free_ char *timings = json_text(json_get(answer, "timings"));

                log_debug("box %s created: %s", box, timings);
        }
        return r;
}

static int coroutine_fn local_simple(struct driver *d, const char *op, const char *box, struct err *e)
{
        return ask(local_of(d), request_for(op, box), NULL, e);
}

static int coroutine_fn local_destroy(struct driver *d, const char *box, struct err *e)
{
        int r = local_simple(d, "destroy", box, e);

        /* boxhost ended on the way: the next one finishes the work. */
        for (int i = 0; i < 3 && r == -ECONNRESET; i++)
                r = local_simple(d, "destroy", box, e);
        if (r == 0 || r == -ENOENT)
                local_wire_forget(&local_of(d)->wire, box);
        return r == -ENOENT ? 0 : r;
}

/* For what may be asked twice: boxhost ended on the way, and the next one answers. */
static int coroutine_fn local_again(struct driver *d, const char *op, const char *box, struct err *e)
{
        int r = local_simple(d, op, box, e);

        for (int i = 0; i < 3 && r == -ECONNRESET; i++)
                r = local_simple(d, op, box, e);
        return r;
}

static int coroutine_fn local_freeze(struct driver *d, const char *box, struct err *e)
{
        return local_again(d, "freeze", box, e);
}

static int coroutine_fn local_thaw(struct driver *d, const char *box, struct err *e)
{
        return local_again(d, "thaw", box, e);
}

static int coroutine_fn local_archive(struct driver *d, const char *box, struct err *e)
{
        return local_again(d, "archive", box, e);
}

static int coroutine_fn restore_once(struct driver *d, const char *box, const char *image, const char *hostname,
                                     bool *ret_work_only, struct err *e)
{
        struct json *req = request_for("restore", box);
        _cleanup_json_ struct json *answer = NULL;

        json_set_str(req, "hostname", hostname);
        if (image)
                json_set_str(req, "image", image);
        int r = ask(local_of(d), req, &answer, e);
        if (r == 0)
                *ret_work_only = json_get_bool(answer, "renewed", false);
        return r;
}

static int coroutine_fn local_restore(struct driver *d, const char *box, const char *image, const char *hostname,
                                      bool *ret_work_only, struct err *e)
{
        int r = restore_once(d, box, image, hostname, ret_work_only, e);

        /* After a reset the first attempt may have come to its end all the same; it is then made undone, since nobody
         * knows what it would have answered. A disk that was in use is free once the kernel has put it down. */
        for (int i = 0; i < BUSY_TRIES && (r == -ECONNRESET || r == -EBUSY); i++) {
                if (r == -ECONNRESET)
                        r = local_archive(d, box, e);
                else
                        r = coro_sleep(BUSY_PAUSE_MS);
                if (r == 0)
                        r = restore_once(d, box, image, hostname, ret_work_only, e);
        }
        return r;
}

static int coroutine_fn local_connect(struct driver *d, const char *box, struct stream **ret, struct err *e)
{
        _cleanup_free_ char *path = xasprintf("%s/%s.sock", local_of(d)->run_dir, box);
        int r = stream_connect_unix(path, CONNECT_MS, ret, e);

        if (r == -ECONNREFUSED || r == -ENOENT)
                return err_set(e, -ENOENT, "the box %s does not run", box);
        return r;
}

/* One page; *after becomes where the next begins, or NULL after the last. */
static int coroutine_fn list_page(struct local *l, char **after,
                                  int (*fn)(const char *box, const char *state, void *arg), void *arg, struct err *e)
{
        _cleanup_json_ struct json *answer = NULL;
        _cleanup_free_ char *from = *after;
        struct json *req = request_for("list", NULL);
        int r;

        *after = NULL;
        json_set_str(req, "after", from);
        r = ask(l, req, &answer, e);
        if (r < 0)
                return r;
        struct json *boxes = json_get(answer, "boxes");
        for (size_t i = 0; i < json_len(boxes); i++) {
                struct json *b = json_at(boxes, i);

                local_wire_note(&l->wire, json_get_str(b, "address", ""), json_get_str(b, "box", ""));
                r = fn(json_get_str(b, "box", ""), json_get_str(b, "state", "dead"), arg);
                if (r != 0)
                        return r;
        }
        *after = xstrdup(json_get_str(answer, "next", NULL));
        return 0;
}

static int coroutine_fn archives_page(struct local *l, char **after,
                                      int (*fn)(const char *box, const char *state, void *arg), void *arg,
                                      struct err *e)
{
        _cleanup_json_ struct json *answer = NULL;
        _cleanup_free_ char *from = *after;
        struct json *req = request_for("archives", NULL);

        *after = NULL;
        json_set_str(req, "after", from);
        int r = ask(l, req, &answer, e);
        if (r < 0)
                return r;
        struct json *archives = json_get(answer, "archives");
        for (size_t i = 0; i < json_len(archives) && r == 0; i++)
                r = fn(json_get_str(json_at(archives, i), "box", ""), "archived", arg);
        *after = xstrdup(json_get_str(answer, "next", NULL));
        return r;
}

static int coroutine_fn local_list(struct driver *d, int (*fn)(const char *box, const char *state, void *arg),
                                   void *arg, struct err *e)
{
        char *after = NULL;

        do {
                int r = list_page(local_of(d), &after, fn, arg, e);

                if (r != 0)
                        return r;
        } while (after);
        do {
                int r = archives_page(local_of(d), &after, fn, arg, e);

                if (r != 0) {
                        free(after);
                        return r;
                }
        } while (after);
        return 0;
}

/* ---- names and their addresses ---- */

static int ignore_box(const char *box, const char *state, void *arg)
{
        (void) box;
        (void) state;
        (void) arg;
        return 0;
}

/* Takes the socket of this boxhost in, and learns first whose connections may arrive there. */
static int coroutine_fn open_wire(struct local *l, struct err *e)
{
        _cleanup_json_ struct json *answer = NULL;
        _cleanup_close_ int fd = -1;
        int r = local_list(&l->base, ignore_box, NULL, e);

        if (r == 0)
                r = ask_fd(l, request_for("wire", NULL), &answer, &fd, e);
        if (r < 0)
                return r;
        return local_wire_open(&l->wire, &fd, json_get_str(answer, "first", ""), json_get_int(answer, "count", 0), e);
}

static void coroutine_fn wire_main(void *arg)
{
        struct local *l = arg;
        struct err e = { 0 };
        int r = open_wire(l, &e);

        if (r < 0 && r != -EOPNOTSUPP && !l->closing)
                log_warning("connections of boxes to their declared names are not taken: %s", err_text(&e));
}

static int coroutine_fn local_names(struct driver *d, const char *box, const char *const *names, size_t count,
                                    char (*ret_addresses)[DRIVER_ADDRESS_MAX], struct err *e)
{
        struct local *l = local_of(d);
        struct json *request = request_for("names", box), *list = json_arr();
        int r = 0;

        for (size_t i = 0; i < count; i++)
                json_push(list, json_new_str(names[i]));
        json_set(request, "names", list);
        r = ask(l, request, NULL, e);
        if (r == 0 && !local_wire_is_open(&l->wire))
                r = open_wire(l, e);
        for (size_t i = 0; r == 0 && i < count; i++)
                r = local_wire_address(&l->wire, i, ret_addresses[i], e);
        return r;
}

static int coroutine_fn local_stats(struct driver *d, const char *box, struct driver_stats *ret, struct err *e)
{
        _cleanup_json_ struct json *a = NULL;
        int r = ask(local_of(d), request_for("stats", box), &a, e);

        if (r < 0)
                return r;
        const struct json *memory = json_get(a, "memory"), *pids = json_get(a, "pids"), *disk = json_get(a, "disk");
        *ret = (struct driver_stats){
                .cpu_usec = json_get_int(a, "cpuUsec", 0),
                .memory_used = json_get_int(memory, "used", 0),
                .memory_limit = json_get_int(memory, "limit", 0),
                .pids_used = json_get_int(pids, "used", 0),
                .pids_limit = json_get_int(pids, "limit", 0),
                .pids_denied = json_get_int(pids, "denied", 0),
                .disk_used = json_get_int(disk, "used", 0),
                .disk_limit = json_get_int(disk, "limit", 0),
                .oom_kills = json_get_int(a, "oomKills", 0),
        };
        return 0;
}

/* boxhost says once where the kernel counts; the file itself is readable by everyone, so no message is needed for each
 * command. */
static void coroutine_fn learn_oom_file(struct local *l)
{
        _cleanup_json_ struct json *hello = NULL;

        if (ask(l, request_for("hello", NULL), &hello, NULL) < 0 || l->oom_file)
                return;
        l->oom_file = xstrdup(json_get_str(hello, "oomFile", ""));
}

static int64_t coroutine_fn local_oom_kills(struct driver *d, const char *box)
{
        struct local *l = local_of(d);
        _cleanup_buf_ struct buf text = BUF_MAX(4096);
        struct driver_stats st;

        if (!l->oom_file)
                learn_oom_file(l);
        const char *star = l->oom_file ? strchr(l->oom_file, '*') : NULL;
        _cleanup_free_ char *path =
                star ? xasprintf("%.*s%s%s", (int) (star - l->oom_file), l->oom_file, box, star + 1) : NULL;
        if (!path || file_read(AT_FDCWD, path, &text) < 0) {
                int r = local_stats(d, box, &st, NULL);

                return r < 0 ? r : st.oom_kills;
        }
        for (struct str rest = buf_str(&text); rest.n;) {
                struct str line = str_cut(&rest, '\n');
                uint64_t kills = 0;

                if (str_eq(str_cut(&line, ' '), STR("oom_kill")) && parse_u64(line, INT64_MAX, &kills) == 0)
                        return (int64_t) kills;
        }
        return -ENOENT;
}

static int coroutine_fn local_hello(struct driver *d, struct json **ret, struct err *e)
{
        return ask(local_of(d), request_for("hello", NULL), ret, e);
}

static int coroutine_fn local_images(struct driver *d, struct json **ret, struct err *e)
{
        return ask(local_of(d), request_for("images", NULL), ret, e);
}

static void local_stop(struct driver *d)
{
        struct local *l = local_of(d);

        l->closing = true;
        local_wire_close(&l->wire);
        /* Wakes a thread that waits in recvmsg for the supervisor. */
        if (l->feed_fd >= 0)
                (void) shutdown(l->feed_fd, SHUT_RDWR);
        if (l->reader)
                coro_cancel(l->reader);
}

static void local_free(struct driver *d)
{
        struct local *l = local_of(d);

        if (l->feed_fd >= 0)
                (void) close(l->feed_fd);
        map_free(l->pending);
        local_wire_done(&l->wire);
        free(l->socket_path);
        free(l->run_dir);
        free(l->oom_file);
        free(l);
}

static const struct driver_ops local_ops = {
        .name = "local",
        .create = local_create,
        .destroy = local_destroy,
        .archive = local_archive,
        .restore = local_restore,
        .freeze = local_freeze,
        .thaw = local_thaw,
        .connect = local_connect,
        .list = local_list,
        .stats = local_stats,
        .oom_kills = local_oom_kills,
        .names = local_names,
        .hello = local_hello,
        .images = local_images,
        .stop = local_stop,
        .free = local_free,
};

int driver_local_new(int feed_fd, const char *socket_path, const char *run_dir, struct driver **ret, struct err *e)
{
        struct local *l = xcalloc(1, sizeof *l);

        l->base.ops = &local_ops;
        l->feed_fd = feed_fd;
        l->socket_path = xstrdup(socket_path);
        l->run_dir = xstrdup(run_dir);
        l->pending = map_new();
        waitq_init(&l->ready);
        local_wire_init(&l->wire, &l->base);
        l->reader = coro_start(reader_main, l, CORO_STACK_DEFAULT, "boxhost reader");
        if (!l->reader)
                return err_set(e, -ENOMEM, "no coroutine for the box driver");
        *ret = &l->base;
        return 0;
}

bool driver_local_ready(const struct driver *d)
{
        return container_of(d, struct local, base)->sock != NULL;
}
