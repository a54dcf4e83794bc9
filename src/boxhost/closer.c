#include "boxhost/closer.h"

#include "boxhost/sys.h"

#include <errno.h>
#include <signal.h>
#include <time.h>

struct order {
        int fd;
        uint32_t ticket;
};

struct ends {
        int in, out;
};

static void *closer_main(void *arg)
{
        struct ends ends = *(struct ends *) arg;
        struct order o;

        freep(&arg);
        while (read(ends.in, &o, sizeof(o)) == (ssize_t) sizeof(o)) {
                close(o.fd);
                (void) !write(ends.out, &o.ticket, sizeof(o.ticket));
        }
        close(ends.in);
        close(ends.out);
        return NULL;
}

int closer_start(struct closer *c, struct err *e)
{
        struct ends *ends;
        sigset_t all, before;
        int to[2], from[2], r;

        *c = (struct closer){ .to = -1, .from = -1 };
        if (pipe2(to, O_CLOEXEC) < 0)
                return err_sys(e, -errno, "no pipe");
        if (pipe2(from, O_CLOEXEC) < 0) {
                r = err_sys(e, -errno, "no pipe");
                close(to[0]);
                close(to[1]);
                return r;
        }
        (void) fcntl(from[0], F_SETFL, O_NONBLOCK);
        ends = xmalloc(sizeof(*ends));
        *ends = (struct ends){ .in = to[0], .out = from[1] };
        sigfillset(&all); /* signals are the request loop's business */
        (void) pthread_sigmask(SIG_SETMASK, &all, &before);
        r = pthread_create(&c->thread, NULL, closer_main, ends);
        (void) pthread_sigmask(SIG_SETMASK, &before, NULL);
        if (r != 0) {
                freep(&ends);
                for (int i = 0; i < 2; i++) {
                        close(to[i]);
                        close(from[i]);
                }
                return err_sys(e, -r, "cannot start a thread");
        }
        c->to = to[1];
        c->from = from[0];
        return 0;
}

void closer_stop(struct closer *c)
{
        if (c->to < 0)
                return;
        close(steal_fd(&c->to));
        (void) pthread_join(c->thread, NULL);
        close(steal_fd(&c->from));
}

int closer_give(struct closer *c, int fd, uint32_t ticket)
{
        struct order o = { .fd = fd, .ticket = ticket };

        const struct timespec pause = { .tv_nsec = 50000 };

        if (c->to < 0)
                return -EBADF;
        if (write(c->to, &o, sizeof(o)) != (ssize_t) sizeof(o))
                return -errno;
        /* Until the thread has begun: a box cloned before would inherit a copy, and pay for the last close itself. */
        for (int i = 0; i < 40 && fcntl(fd, F_GETFD) >= 0; i++)
                (void) nanosleep(&pause, NULL);
        return 0;
}

int closer_done(struct closer *c, uint32_t *ret_ticket)
{
        return read(c->from, ret_ticket, sizeof(*ret_ticket)) == (ssize_t) sizeof(*ret_ticket) ? 0 : -EAGAIN;
}
