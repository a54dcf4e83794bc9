#include "boxhost/dns_forward.h"

#include "boxhost/dns_names.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/ids.h"
#include "base/mem.h"
#include "base/str.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define SERVERS_MAX 4
#define PACKET_MAX 4096
#define HEADER 12
#define TRY_MS 2000
#define IDLE_MS 15000
#define RELAY_BUFFER 4096
#define RESOLV_CONF "/etc/resolv.conf"

struct question {
        bool used;
        int fd; /* connected to a server */
        struct sockaddr_in client;
        uint16_t client_id, id; /* as they are on the wire */
        unsigned tries;
        int64_t deadline;
        size_t n;
        unsigned char packet[512]; /* the question, to ask the next server and to compare the answer with */
};

struct relay { /* one direction is half of it */
        bool used;
        int fd[2]; /* client, server */
        struct sockaddr_in client;
        bool ended[2];
        size_t n[2]; /* bytes waiting to be written to fd[i] */
        char bytes[2][RELAY_BUFFER];
        int64_t deadline;
};

struct forwarder {
        int udp, tcp, told, poll;
        struct dns_names names;
        const char *resolver;
        struct sockaddr_in server[SERVERS_MAX];
        unsigned servers;
        struct timespec conf_time;
        int64_t conf_checked;
        struct question question[DNS_IN_FLIGHT];
        struct relay relay[DNS_CONNECTIONS];
};

enum { TAG_UDP = 1U << 20, TAG_TCP, TAG_NAMES, TAG_RELAY = 1U << 24 };

static bool parse_server(struct str s, struct sockaddr_in *ret)
{
        struct str address = str_cut(&s, ':');
        char copy[INET_ADDRSTRLEN];
        uint64_t port = 53;

        if (address.n == 0 || address.n >= sizeof(copy) || (s.n > 0 && parse_u64(s, 65535, &port) < 0))
                return false;
        memcpy(copy, address.p, address.n);
        copy[address.n] = '\0';
        *ret = (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = htons((uint16_t) port) };
        return inet_pton(AF_INET, copy, &ret->sin_addr) == 1;
}

static void read_conf(struct forwarder *f)
{
        _cleanup_buf_ struct buf b = BUF_MAX(1 << 16);
        struct str text;
        unsigned n = 0;

        if (file_read(AT_FDCWD, RESOLV_CONF, &b) < 0)
                return;
        text = buf_str(&b);
        while (text.n > 0 && n < SERVERS_MAX) {
                struct str line = str_trim(str_cut(&text, '\n'), " \t\r");
                if (!str_starts(line, STR("nameserver")) || line.n < 12)
                        continue;
                line = str_trim(str_n(line.p + 10, line.n - 10), " \t");
                if (parse_server(line, &f->server[n]))
                        n++;
        }
        if (n > 0)
                f->servers = n;
}

static void refresh(struct forwarder *f)
{
        int64_t now = clock_ms();
        struct stat st;

        if (f->resolver) {
                if (f->servers == 0 && parse_server(str_of(f->resolver), &f->server[0]))
                        f->servers = 1;
                return;
        }
        if (f->servers > 0 && now - f->conf_checked < 1000)
                return;
        f->conf_checked = now;
        if (stat(RESOLV_CONF, &st) < 0 ||
            (f->servers > 0 && memcmp(&st.st_mtim, &f->conf_time, sizeof(st.st_mtim)) == 0))
                return;
        f->conf_time = st.st_mtim;
        read_conf(f);
}

static void watch(struct forwarder *f, int fd, uint32_t events, uint32_t tag)
{
        struct epoll_event ev = { .events = events, .data.u32 = tag };

        if (epoll_ctl(f->poll, EPOLL_CTL_MOD, fd, &ev) < 0)
                (void) epoll_ctl(f->poll, EPOLL_CTL_ADD, fd, &ev);
}

static void drop_question(struct question *q)
{
        if (q->fd >= 0)
                close(steal_fd(&q->fd));
        q->used = false;
}

static void answer_failure(struct forwarder *f, struct question *q)
{
        q->packet[0] = (unsigned char) (q->client_id & 0xff);
        q->packet[1] = (unsigned char) (q->client_id >> 8);
        q->packet[2] |= 0x80; /* an answer */
        q->packet[3] = 0x82;  /* recursion available, SERVFAIL */
        memset(q->packet + 6, 0, 6);
        (void) sendto(f->udp, q->packet, q->n, 0, (struct sockaddr *) &q->client, sizeof(q->client));
        drop_question(q);
}

/* Asks the next server, on a new socket and with a new id. */
static void ask(struct forwarder *f, struct question *q)
{
        const struct sockaddr_in *server;

        if (q->fd >= 0)
                close(steal_fd(&q->fd));
        if (f->servers == 0 || q->tries >= 2 * f->servers + 1) {
                answer_failure(f, q);
                return;
        }
        server = &f->server[q->tries++ % f->servers];
        random_bytes(&q->id, sizeof(q->id));
        memcpy(q->packet, &q->id, sizeof(q->id));
        q->deadline = clock_ms() + TRY_MS;
        q->fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (q->fd < 0 || connect(q->fd, (const struct sockaddr *) server, sizeof(*server)) < 0 ||
            send(q->fd, q->packet, q->n, 0) < 0) {
                q->deadline = clock_ms() + 50; /* refused at once: the next server soon, but not in a loop */
                return;
        }
        watch(f, q->fd, EPOLLIN, (uint32_t) (q - f->question));
}

static struct question *free_question(struct forwarder *f, const struct sockaddr_in *client)
{
        struct question *found = NULL;
        unsigned mine = 0;

        for (size_t i = 0; i < DNS_IN_FLIGHT; i++) {
                if (!f->question[i].used)
                        found = found ? found : &f->question[i];
                else if (f->question[i].client.sin_addr.s_addr == client->sin_addr.s_addr)
                        mine++;
        }
        return mine < DNS_IN_FLIGHT / DNS_ONE_CLIENT ? found : NULL;
}

static void take_question(struct forwarder *f)
{
        unsigned char packet[PACKET_MAX];
        struct sockaddr_in client = { 0 };
        socklen_t length = sizeof(client);
        ssize_t n = recvfrom(f->udp, packet, sizeof(packet), 0, (struct sockaddr *) &client, &length);
        struct question *q;
        size_t known;

        /* A question is a header with one entry and no answer bit; anything else is nobody's. */
        if (n < HEADER + 5 || (size_t) n > sizeof(q->packet) || (packet[2] & 0x80) || packet[4] != 0 || packet[5] != 1)
                return;
        unsigned char answer[sizeof(q->packet) + 16];
        known = dns_names_answer(&f->names, ntohl(client.sin_addr.s_addr), packet, (size_t) n, answer, sizeof(answer));
        if (known > 0) {
                (void) sendto(f->udp, answer, known, 0, (struct sockaddr *) &client, sizeof(client));
                return;
        }
        q = free_question(f, &client);
        if (!q)
                return; /* full: the client asks again */
        *q = (struct question){ .used = true, .fd = -1, .client = client, .n = (size_t) n };
        memcpy(q->packet, packet, (size_t) n);
        memcpy(&q->client_id, packet, sizeof(q->client_id));
        refresh(f);
        ask(f, q);
}

static void take_names(struct forwarder *f)
{
        unsigned char message[DNS_NAMES_MESSAGE_MAX + 1];
        ssize_t n = recv(f->told, message, sizeof(message), 0);

        if (n <= 0)
                _exit(0); /* boxhost is gone */
        dns_names_take(&f->names, message, (size_t) n);
}

/* Length of the first entry of the question section (name, type, class), 0 when malformed. */
static size_t entry_length(const unsigned char *p, size_t n)
{
        size_t at = HEADER;

        while (at < n && p[at] != 0) {
                if (p[at] > 63)
                        return 0;
                at += p[at] + 1U;
        }
        return at + 5 <= n ? at + 5 - HEADER : 0;
}

static void take_answer(struct forwarder *f, struct question *q)
{
        unsigned char packet[PACKET_MAX];
        ssize_t n;
        size_t entry = entry_length(q->packet, q->n);

        if (!q->used)
                return;
        n = recv(q->fd, packet, sizeof(packet), 0);
        if (n < 0 && errno != EAGAIN && errno != EINTR) {
                q->deadline = clock_ms() + 50;
                close(steal_fd(&q->fd));
                return;
        }
        if (n < HEADER || memcmp(packet, &q->id, sizeof(q->id)) != 0 || !(packet[2] & 0x80))
                return; /* not the answer; it may still come */
        if (packet[5] == 1 && ((size_t) n < HEADER + entry || memcmp(packet + HEADER, q->packet + HEADER, entry) != 0))
                return;
        memcpy(packet, &q->client_id, sizeof(q->client_id));
        (void) sendto(f->udp, packet, (size_t) n, 0, (struct sockaddr *) &q->client, sizeof(q->client));
        drop_question(q);
}

static void drop_relay(struct relay *r)
{
        for (int i = 0; i < 2; i++) {
                if (r->fd[i] >= 0)
                        close(steal_fd(&r->fd[i]));
        }
        r->used = false;
}

static void watch_relay(struct forwarder *f, struct relay *r)
{
        uint32_t at = (uint32_t) (r - f->relay);

        for (uint32_t i = 0; i < 2; i++) {
                uint32_t events = (r->n[i] > 0 ? EPOLLOUT : 0U) | (!r->ended[i] && r->n[!i] == 0 ? EPOLLIN : 0U);
                watch(f, r->fd[i], events, TAG_RELAY + 2 * at + i);
        }
}

static void take_connection(struct forwarder *f)
{
        struct sockaddr_in client = { 0 };
        socklen_t length = sizeof(client);
        int fd = accept4(f->tcp, (struct sockaddr *) &client, &length, SOCK_CLOEXEC | SOCK_NONBLOCK);
        struct relay *r = NULL;
        unsigned mine = 0;

        if (fd < 0)
                return;
        for (size_t i = 0; i < DNS_CONNECTIONS; i++) {
                if (!f->relay[i].used)
                        r = r ? r : &f->relay[i];
                else if (f->relay[i].client.sin_addr.s_addr == client.sin_addr.s_addr)
                        mine++;
        }
        refresh(f);
        if (!r || mine >= DNS_CONNECTIONS / DNS_ONE_CLIENT || f->servers == 0) {
                close(fd);
                return;
        }
        *r = (struct relay){ .used = true, .fd = { fd, -1 }, .client = client, .deadline = clock_ms() + IDLE_MS };
        r->fd[1] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (r->fd[1] < 0 ||
            (connect(r->fd[1], (struct sockaddr *) &f->server[0], sizeof(f->server[0])) < 0 && errno != EINPROGRESS)) {
                drop_relay(r);
                return;
        }
        watch_relay(f, r);
}

static void move_bytes(struct forwarder *f, struct relay *r, int side, uint32_t events)
{
        r->deadline = clock_ms() + IDLE_MS;
        if ((events & (EPOLLERR | EPOLLHUP)) && !(events & EPOLLIN)) {
                drop_relay(r);
                return;
        }
        if ((events & EPOLLOUT) && r->n[side] > 0) {
                ssize_t n = send(r->fd[side], r->bytes[side], r->n[side], MSG_NOSIGNAL);
                if (n < 0 && errno != EAGAIN) {
                        drop_relay(r);
                        return;
                }
                if (n > 0) {
                        r->n[side] -= (size_t) n;
                        memmove(r->bytes[side], r->bytes[side] + n, r->n[side]);
                }
        }
        if ((events & EPOLLIN) && r->n[!side] == 0) {
                ssize_t n = recv(r->fd[side], r->bytes[!side], RELAY_BUFFER, 0);
                if (n == 0 || (n < 0 && errno != EAGAIN))
                        r->ended[side] = true;
                if (n > 0)
                        r->n[!side] = (size_t) n;
        }
        /* A DNS client that closes wants no more answers, and a server that closes has none. */
        if ((r->ended[0] && r->n[1] == 0) || (r->ended[1] && r->n[0] == 0))
                drop_relay(r);
        else
                watch_relay(f, r);
}

static int expire(struct forwarder *f)
{
        int64_t now = clock_ms(), next = now + 60000;

        for (size_t i = 0; i < DNS_IN_FLIGHT; i++) {
                struct question *q = &f->question[i];
                if (q->used && q->deadline <= now)
                        ask(f, q);
                if (q->used && q->deadline < next)
                        next = q->deadline;
        }
        for (size_t i = 0; i < DNS_CONNECTIONS; i++) {
                struct relay *r = &f->relay[i];
                if (r->used && r->deadline <= now)
                        drop_relay(r);
                else if (r->used && r->deadline < next)
                        next = r->deadline;
        }
        return (int) (next > now ? next - now : 0) + 1;
}

static void dispatch(struct forwarder *f, const struct epoll_event *ev)
{
        uint32_t tag = ev->data.u32;

        if (tag == TAG_UDP) {
                take_question(f);
        } else if (tag == TAG_NAMES) {
                take_names(f);
        } else if (tag == TAG_TCP) {
                take_connection(f);
        } else if (tag >= TAG_RELAY) {
                struct relay *r = &f->relay[(tag - TAG_RELAY) / 2 % DNS_CONNECTIONS];
                if (r->used)
                        move_bytes(f, r, (int) (tag & 1), ev->events);
        } else if (tag < DNS_IN_FLIGHT) {
                take_answer(f, &f->question[tag]);
        }
}

void dns_forward(int udp, int tcp, int names, const struct net_range *subnet, const char *resolver)
{
        static struct forwarder f;
        struct epoll_event ev[32];

        f.udp = udp;
        f.tcp = tcp;
        f.told = names;
        f.names.subnet = *subnet;
        f.resolver = resolver;
        f.poll = epoll_create1(EPOLL_CLOEXEC);
        if (f.poll < 0)
                _exit(1);
        watch(&f, udp, EPOLLIN, TAG_UDP);
        watch(&f, tcp, EPOLLIN, TAG_TCP);
        watch(&f, names, EPOLLIN, TAG_NAMES);
        for (;;) {
                int n = epoll_wait(f.poll, ev, ARRAY_LEN(ev), expire(&f));
                if (n < 0 && errno != EINTR)
                        _exit(1);
                for (int i = 0; i < n; i++)
                        dispatch(&f, &ev[i]);
        }
}
