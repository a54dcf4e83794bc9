#include "boxhost/closer.h"

#include "boxhost/disk.h"
#include "boxhost/net.h"
#include "boxhost/netlink.h"
#include "boxhost/sys.h"

#include <errno.h>
#include <linux/netlink.h>
#include <signal.h>
#include <time.h>

#define FREE_TRIES 20000 /* of 2 ms: what a machine needs to write a few GiB */

struct order {
        struct box_rest rest;
        uint32_t ticket;
};

struct report {
        uint32_t ticket;
        int result;
};

struct ends {
        int in, out;
        struct net net; /* nl is -1 without a network */
};

/* Unmounting writes what the box had not written yet. */
static int wait_free(int watch)
{
        const struct timespec pause = { .tv_nsec = 2000000 };

        for (int i = 0; i < FREE_TRIES; i++) {
                if (disk_is_free(watch))
                        return 0;
                (void) nanosleep(&pause, NULL);
        }
        return -EBUSY;
}

static void *closer_main(void *arg)
{
        struct ends ends = *(struct ends *) arg;
        struct order o;

        freep(&arg);
        while (read(ends.in, &o, sizeof(o)) == (ssize_t) sizeof(o)) {
                struct report done = { .ticket = o.ticket };
                if (o.rest.disk >= 0)
                        close(o.rest.disk);
                if (o.rest.index >= 0 && ends.net.nl >= 0)
                        done.result = net_remove(&ends.net, (unsigned) o.rest.index, NULL);
                if (o.rest.watch >= 0) {
                        int r = wait_free(o.rest.watch);

                        close(o.rest.watch);
                        if (r < 0)
                                done.result = r;
                }
                (void) !write(ends.out, &done, sizeof(done));
        }
        close(ends.in);
        close(ends.out);
        net_close(&ends.net);
        return NULL;
}

int closer_start(struct closer *c, const struct net *net, struct err *e)
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
        *ends = (struct ends){ .in = to[0], .out = from[1], .net = { .nl = -1 } };
        if (net) {
                ends->net = *net;
                ends->net.nl = nl_open(NETLINK_ROUTE, NULL);
        }
        sigfillset(&all); /* signals are the request loop's business */
        (void) pthread_sigmask(SIG_SETMASK, &all, &before);
        r = pthread_create(&c->thread, NULL, closer_main, ends);
        (void) pthread_sigmask(SIG_SETMASK, &before, NULL);
        if (r != 0) {
                net_close(&ends->net);
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

int closer_give(struct closer *c, const struct box_rest *rest, uint32_t ticket)
{
        struct order o = { .rest = *rest, .ticket = ticket };

        const struct timespec pause = { .tv_nsec = 50000 };

        if (c->to < 0)
                return -EBADF;
        if (write(c->to, &o, sizeof(o)) != (ssize_t) sizeof(o))
                return -errno;
        /* Until the thread has begun: a box cloned before would inherit a copy, and pay for the last close itself. */
        for (int i = 0; rest->disk >= 0 && i < 40 && fcntl(rest->disk, F_GETFD) >= 0; i++)
                (void) nanosleep(&pause, NULL);
        return 0;
}

int closer_done(struct closer *c, uint32_t *ret_ticket, int *ret_result)
{
        struct report done;

        if (read(c->from, &done, sizeof(done)) != (ssize_t) sizeof(done))
                return -EAGAIN;
        *ret_ticket = done.ticket;
        *ret_result = done.result;
        return 0;
}
