#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdlib.h>

#include "loop/loop_impl.h"
#include "loop/resolve.h"

/* On the stack of the caller, who stays until the work is done whatever happens. */
struct work {
        uv_work_t uv;
        int (*fn)(void *arg);
        void *arg;
        int result;
        bool done;
        struct coro *caller;
};

static void work_run(uv_work_t *uv)
{
        struct work *w = container_of(uv, struct work, uv);

        w->result = w->fn(w->arg);
}

static void work_done(uv_work_t *uv, int status)
{
        struct work *w = container_of(uv, struct work, uv);

        if (status < 0)
                w->result = status;
        w->done = true;
        coro_wake(w->caller);
}

int coroutine_fn offload(int (*fn)(void *arg), void *arg)
{
        struct work w = { .fn = fn, .arg = arg, .caller = coro_self() };
        int r;

        coro_shield();
        r = uv_queue_work(loop_uv(), &w.uv, work_run, work_done);
        while (r == 0 && !w.done)
                (void) coro_park(-1);
        coro_unshield();
        return r < 0 ? r : w.result;
}

/* Outlives a caller that gave up: the C library cannot be interrupted. */
struct lookup {
        uv_getaddrinfo_t uv;
        struct coro *caller; /* NULL once given up */
        struct addrinfo *found;
        int status;
        bool done;
};

static void lookup_free(struct lookup *l)
{
        if (l->found)
                uv_freeaddrinfo(l->found);
        free(l);
}

static void lookup_done(uv_getaddrinfo_t *uv, int status, struct addrinfo *found)
{
        struct lookup *l = container_of(uv, struct lookup, uv);

        l->found = found;
        l->status = status;
        l->done = true;
        if (l->caller)
                coro_wake(l->caller);
        else
                lookup_free(l);
}

static int lookup_errno(int status)
{
        switch (status) {
        case UV_EAI_NONAME:
        case UV_EAI_NODATA:
                return -ENOENT;
        case UV_EAI_MEMORY:
                return -ENOMEM;
        default:
                return -EHOSTUNREACH;
        }
}

int coroutine_fn resolve_all(const char *host, int64_t timeout_ms, struct addrinfo **ret, struct err *e)
{
        struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM };
        struct lookup *l = xcalloc(1, sizeof(*l));
        int64_t until = deadline_in(timeout_ms);
        int r;

        l->caller = coro_self();
        r = uv_getaddrinfo(loop_uv(), &l->uv, lookup_done, host, NULL, &hints);
        if (r < 0) {
                free(l);
                return err_sys(e, r, "cannot resolve %s", host);
        }
        while (r == 0 && !l->done)
                r = coro_park(deadline_left(until));
        if (!l->done) {
                l->caller = NULL;
                (void) uv_cancel((uv_req_t *) &l->uv);
                return err_sys(e, r, "cannot resolve %s", host);
        }
        if (l->status == 0 && l->found) {
                *ret = steal_ptr(l->found);
                r = 0;
        } else {
                r = err_set(e, lookup_errno(l->status), "cannot resolve %s: %s", host,
                            l->status < 0 ? uv_strerror(l->status) : "no address");
        }
        lookup_free(l);
        return r;
}

int coroutine_fn resolve_host(const char *host, char *ret_addr, size_t n, struct err *e)
{
        struct addrinfo *found = NULL;
        int r = resolve_all(host, -1, &found, e);

        if (r < 0)
                return r;
        r = err_set(NULL, -ENOENT, "no address");
        for (struct addrinfo *a = found; a && r < 0; a = a->ai_next) {
                const void *addr = NULL;

                if (a->ai_family == AF_INET)
                        addr = &((const struct sockaddr_in *) (const void *) a->ai_addr)->sin_addr;
                else if (a->ai_family == AF_INET6)
                        addr = &((const struct sockaddr_in6 *) (const void *) a->ai_addr)->sin6_addr;
                if (addr)
                        r = inet_ntop(a->ai_family, addr, ret_addr, (socklen_t) n) ? 0 : -errno;
        }
        uv_freeaddrinfo(found);
        return r < 0 ? err_sys(e, r, "no usable address for %s", host) : 0;
}
