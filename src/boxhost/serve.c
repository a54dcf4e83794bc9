#include "boxhost/serve.h"

#include "boxhost/box.h"
#include "boxhost/image_store.h"
#include "boxhost/request.h"
#include "boxhost/share.h"
#include "boxhost/sys.h"
#include "boxhost/wire.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#define CONNS_MAX 16
#define SEND_TIMEOUT_MS 2000
#define DNS_PAUSE_MS 2000

struct conn {
        struct source source;
        int fd; /* -1: free */
};

/* An answer that waits for the rest of a box to be gone. */
struct pending {
        struct list link;
        uint32_t ticket;
        int fd; /* of the connection that asked */
        struct buf answer;
};

struct loop {
        struct host *h;
        struct list pending;
        uint32_t next_ticket;
        const struct serve_options *options;
        int poll, listener, signals, images;
        struct source at_listener, at_signals, at_filler, at_dns, at_closer, at_images;
        struct conn conns[CONNS_MAX];
        int64_t dns_started, dns_at; /* when the forwarder was started again, and is to be (0: it runs) */
        bool stop;
};

static void watch(struct loop *l, int fd, struct source *s)
{
        struct epoll_event ev = { .events = EPOLLIN, .data.ptr = s };

        if (epoll_ctl(l->poll, EPOLL_CTL_ADD, fd, &ev) < 0)
                log_error("cannot wait for a descriptor: %s", strerror(errno));
}

static void forget_pending(struct pending *p)
{
        list_remove(&p->link);
        buf_done(&p->answer);
        freep(&p);
}

static void drop_conn(struct loop *l, struct conn *c)
{
        bool inherited = c->fd == l->options->fd;

        list_for_each_safe (it, &l->pending) {
                struct pending *p = list_entry(it, struct pending, link);
                if (p->fd == c->fd)
                        forget_pending(p);
        }
        close(steal_fd(&c->fd));
        if (inherited)
                l->stop = true; /* the server that started us is gone */
}

static void add_conn(struct loop *l, int fd)
{
        struct timeval patience = { .tv_sec = SEND_TIMEOUT_MS / 1000 };

        for (size_t i = 0; i < CONNS_MAX; i++) {
                struct conn *c = &l->conns[i];
                if (c->fd >= 0)
                        continue;
                c->fd = fd;
                c->source = (struct source){ .kind = SOURCE_CONN, .of = c };
                /* A peer that does not read must not hold up the others for long. */
                (void) setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
                watch(l, fd, &c->source);
                return;
        }
        close(fd);
}

static void accept_conn(struct loop *l)
{
        struct ucred peer;
        socklen_t n = sizeof(peer);
        int fd = accept4(l->listener, NULL, NULL, SOCK_CLOEXEC);

        if (fd < 0)
                return;
        if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &n) < 0 || peer.uid != l->options->peer_uid) {
                log_warning("a connection of another user was refused");
                close(fd);
                return;
        }
        add_conn(l, fd);
}

static void say(struct loop *l, struct conn *c, const struct buf *b)
{
        if (send(c->fd, b->p, b->len, MSG_NOSIGNAL) < 0) {
                log_warning("cannot answer the server: %s", strerror(errno));
                drop_conn(l, c);
        }
}

static void hand(struct loop *l, struct conn *c, const struct buf *b, int fd)
{
        int r = sys_send_fds(c->fd, b->p, b->len, &fd, 1);

        if (r < 0) {
                log_warning("cannot answer the server: %s", strerror(-r));
                drop_conn(l, c);
        }
}

static void watch_filler(struct loop *l)
{
        int before = l->h->disks.filler_sock;

        disk_refill(&l->h->disks);
        if (l->h->disks.filler_sock >= 0 && l->h->disks.filler_sock != before)
                watch(l, l->h->disks.filler_sock, &l->at_filler);
}

static void say_later(struct loop *l, struct conn *c, struct buf *answer, const struct box_rest *rest)
{
        struct pending *p = xcalloc(1, sizeof(*p));

        p->ticket = l->next_ticket++;
        p->fd = c->fd;
        if (closer_give(&l->h->closer, rest, p->ticket) < 0) {
                closep(&rest->disk); /* the interface goes with the next start, if not before by itself */
                closep(&rest->watch);
                say(l, c, answer);
                freep(&p);
                return;
        }
        p->answer = *answer;
        *answer = BUF_MAX(0);
        list_append(&l->pending, &p->link);
}

static void say_closed(struct loop *l)
{
        uint32_t ticket;
        int result;

        while (closer_done(&l->h->closer, &ticket, &result) == 0) {
                if (result < 0)
                        log_error("the interface or the disk of an ended box stays: %s", strerror(-result));
                list_for_each_safe (it, &l->pending) {
                        struct pending *p = list_entry(it, struct pending, link);
                        if (p->ticket != ticket)
                                continue;
                        for (size_t i = 0; i < CONNS_MAX; i++) {
                                if (l->conns[i].fd >= 0 && l->conns[i].fd == p->fd)
                                        say(l, &l->conns[i], &p->answer);
                        }
                        forget_pending(p);
                }
        }
}

static void take_request(struct loop *l, struct conn *c)
{
        static char in[SERVE_MESSAGE_MAX + 1];
        _cleanup_buf_ struct buf out = BUF_MAX(SERVE_MESSAGE_MAX);
        struct request_result result;
        ssize_t n = recv(c->fd, in, sizeof(in), 0);

        if (n < 0 && (errno == EINTR || errno == EAGAIN))
                return;
        if (n <= 0) {
                drop_conn(l, c);
                return;
        }
        request_answer(l->h, in, (size_t) n, &out, &result);
        if (result.created)
                watch(l, result.created->pidfd, &result.created->source);
        if (result.rest.disk >= 0 || result.rest.index >= 0 || result.rest.watch >= 0)
                say_later(l, c, &out, &result.rest);
        else if (result.handed >= 0)
                hand(l, c, &out, result.handed);
        else
                say(l, c, &out);
        if (result.refill)
                watch_filler(l);
}

static void say_to_all(struct loop *l, const struct buf *b)
{
        for (size_t i = 0; i < CONNS_MAX; i++) {
                if (l->conns[i].fd >= 0)
                        say(l, &l->conns[i], b);
        }
}

/* Another process built, removed or chose an image: whoever keeps boxes of the old one ready wants to know. */
static void tell_images(struct loop *l)
{
        static const char text[] = "{\"event\":\"images\"}";
        const struct buf b = { .p = (char *) (uintptr_t) text, .len = sizeof(text) - 1 };

        if (image_changed(l->images))
                say_to_all(l, &b);
}

static void tell_ended(struct loop *l, struct box *b)
{
        _cleanup_buf_ struct buf out = BUF_MAX(1024);
        struct jw w;
        char how[32];

        box_ended(l->h, b, how); /* closes the descriptor, which also ends the waiting for it */
        log_info("box %s ended: %s", b->id, how);
        jw_init(&w, &out);
        jw_obj(&w);
        jw_kstr(&w, "event", "exited");
        jw_kstr(&w, "box", b->id);
        jw_kstr(&w, "how", how);
        (void) jw_end_all(&w);
        say_to_all(l, &out);
}

/* One that ends at once would end at once again: it is started at most once in a while. */
static void dns_ended(struct loop *l)
{
        log_warning("the name forwarder ended and will be started again");
        (void) epoll_ctl(l->poll, EPOLL_CTL_DEL, l->h->dns.pidfd, NULL);
        dns_stop(&l->h->dns);
        l->dns_at = l->dns_started + DNS_PAUSE_MS;
}

static void restart_dns(struct loop *l)
{
        struct host *h = l->h;
        struct err e = { 0 };
        uint16_t port = h->dns.port;

        l->dns_started = clock_ms();
        l->dns_at = 0;
        if (dns_start(&h->dns, &h->net_config.subnet, port, h->options->resolver, &e) < 0) {
                log_error("%s", err_text(&e));
                l->dns_at = l->dns_started + DNS_PAUSE_MS;
                return;
        }
        watch(l, h->dns.pidfd, &l->at_dns);
        wire_names_tell_all(h);
        if (h->dns.port != port) {
                h->net_config.dns_port = h->dns.port;
                if (net_rules_load(&h->net_config, &e) < 0)
                        log_error("%s", err_text(&e));
        }
}

/* How long to wait for events: until the forwarder or a look at the disk is due, or forever. */
static int patience(struct loop *l)
{
        int64_t left;

        if (l->dns_at == 0)
                return share_due(l->h);
        left = l->dns_at - clock_ms();
        if (left > 0)
                return left < SHARE_TICK_MS ? (int) left : SHARE_TICK_MS;
        restart_dns(l);
        return SHARE_TICK_MS;
}

static void handle(struct loop *l, struct source *s)
{
        struct conn *c = s->of;

        switch (s->kind) {
        case SOURCE_LISTENER:
                accept_conn(l);
                break;
        case SOURCE_CONN:
                if (c->fd >= 0)
                        take_request(l, c);
                break;
        case SOURCE_BOX:
                tell_ended(l, s->of);
                break;
        case SOURCE_FILLER:
                if (l->h->disks.filler_sock >= 0)
                        disk_arrived(&l->h->disks);
                break;
        case SOURCE_DNS:
                dns_ended(l);
                break;
        case SOURCE_CLOSER:
                say_closed(l);
                break;
        case SOURCE_IMAGES:
                tell_images(l);
                break;
        case SOURCE_SIGNAL:
                l->stop = true;
                break;
        }
}

static int open_listener(struct loop *l, struct err *e)
{
        struct sockaddr_un a = { .sun_family = AF_UNIX };
        const char *path = l->options->listen;
        mode_t mask;
        int r;

        if (strlen(path) >= sizeof(a.sun_path))
                return err_set(e, -ENAMETOOLONG, "the socket's path is too long");
        memcpy(a.sun_path, path, strlen(path) + 1);
        l->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        if (l->listener < 0)
                return err_sys(e, -errno, "cannot make a socket");
        (void) unlink(path);
        mask = umask(0177);
        r = bind(l->listener, (struct sockaddr *) &a, sizeof(a)) < 0 ? -errno : 0;
        (void) umask(mask);
        if (r < 0 || lchown(path, l->options->peer_uid, (gid_t) -1) < 0 || listen(l->listener, CONNS_MAX) < 0)
                return err_sys(e, r < 0 ? r : -errno, "cannot listen on %s", path);
        watch(l, l->listener, &l->at_listener);
        return 0;
}

static int open_signals(struct loop *l, struct err *e)
{
        sigset_t set;

        sigemptyset(&set);
        sigaddset(&set, SIGTERM);
        sigaddset(&set, SIGINT);
        sigaddset(&set, SIGHUP);
        if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
                return err_sys(e, -errno, "cannot block signals");
        l->signals = signalfd(-1, &set, SFD_CLOEXEC);
        if (l->signals < 0)
                return err_sys(e, -errno, "cannot wait for signals");
        watch(l, l->signals, &l->at_signals);
        return 0;
}

static int prepare(struct loop *l, struct err *e)
{
        int r;

        l->poll = l->h->poll = epoll_create1(EPOLL_CLOEXEC);
        if (l->poll < 0)
                return err_sys(e, -errno, "cannot wait for events");
        r = open_signals(l, e);
        if (r == 0 && l->options->listen)
                r = open_listener(l, e);
        if (r < 0)
                return r;
        if (l->options->fd >= 0)
                add_conn(l, l->options->fd);
        if (l->h->dns.pidfd >= 0)
                watch(l, l->h->dns.pidfd, &l->at_dns);
        if (l->h->closer.from >= 0)
                watch(l, l->h->closer.from, &l->at_closer);
        l->images = image_watch(l->h->images_dir);
        if (l->images >= 0)
                watch(l, l->images, &l->at_images);
        list_for_each (it, &l->h->boxes) {
                struct box *b = list_entry(it, struct box, link);
                if (b->pidfd >= 0)
                        watch(l, b->pidfd, &b->source);
        }
        return 0;
}

int serve(struct host *h, const struct serve_options *o, struct err *e)
{
        struct loop l = { .h = h,
                          .options = o,
                          .poll = -1,
                          .listener = -1,
                          .signals = -1,
                          .images = -1,
                          .at_listener = { SOURCE_LISTENER, NULL },
                          .at_signals = { SOURCE_SIGNAL, NULL },
                          .at_filler = { SOURCE_FILLER, NULL },
                          .at_dns = { SOURCE_DNS, NULL },
                          .at_closer = { SOURCE_CLOSER, NULL },
                          .at_images = { SOURCE_IMAGES, NULL } };
        int r;

        list_init(&l.pending);
        for (size_t i = 0; i < CONNS_MAX; i++)
                l.conns[i].fd = -1;
        r = prepare(&l, e);
        if (r == 0)
                watch_filler(&l);
        while (r == 0 && !l.stop) {
                /* One at a time: handling one event may free what another one points to. */
                struct epoll_event ev;
                int n = epoll_wait(l.poll, &ev, 1, patience(&l));
                if (n < 0 && errno != EINTR)
                        r = err_sys(e, -errno, "cannot wait for events");
                if (n > 0)
                        handle(&l, ev.data.ptr);
                if (share_due(h) == 0)
                        share_out(h);
        }
        for (size_t i = 0; i < CONNS_MAX; i++)
                closep(&l.conns[i].fd);
        while (!list_empty(&l.pending))
                forget_pending(list_entry(l.pending.next, struct pending, link));
        closep(&l.listener);
        closep(&l.signals);
        closep(&l.images);
        closep(&l.poll);
        h->poll = -1;
        return r;
}
