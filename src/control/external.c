#include "control/external.h"

#include "base/address.h"
#include "base/mem.h"
#include "loop/loop.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define CONNECT_MS 15000
#define FRESH_MS 2000

/* An address is the machine's own when the way to it begins there. Nothing is sent. */
static bool is_own(const char *address)
{
        struct sockaddr_in6 six = { .sin6_family = AF_INET6, .sin6_port = htons(9) }, from6 = { 0 };
        struct sockaddr_in four = { .sin_family = AF_INET, .sin_port = htons(9) }, from4 = { 0 };
        bool v4 = inet_pton(AF_INET, address, &four.sin_addr) == 1;
        socklen_t n = v4 ? sizeof from4 : sizeof from6;

        if (!v4 && inet_pton(AF_INET6, address, &six.sin6_addr) != 1)
                return true;
        _cleanup_close_ int fd = socket(v4 ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        if (fd < 0 || connect(fd, v4 ? (void *) &four : (void *) &six, n) < 0)
                return false; /* no way there at all: connecting will say so */
        if (getsockname(fd, v4 ? (void *) &from4 : (void *) &from6, &n) < 0)
                return true;
        return v4 ? from4.sin_addr.s_addr == four.sin_addr.s_addr
                  : memcmp(&from6.sin6_addr, &six.sin6_addr, sizeof six.sin6_addr) == 0;
}

int external_address_check(const struct control *c, const char *address, struct err *e)
{
        for (const char *const *net = c->cfg.allow_net; net && *net; net++)
                if (address_in(address, *net))
                        return 0;
        if (!address_public(address))
                return err_set(e, -EACCES,
                               "%s is no public address; the operator can open its network with serve --allow-net",
                               address);
        if (is_own(address))
                return err_set(e, -EACCES,
                               "%s is an address of this machine; the operator can open it with serve --allow-net",
                               address);
        return 0;
}

static bool is_literal(const char *host)
{
        unsigned char raw[16];

        return inet_pton(AF_INET, host, raw) == 1 || inet_pton(AF_INET6, host, raw) == 1;
}

int external_url_check(const struct control *c, const char *text, char **ret, struct err *e)
{
        size_t n = strlen(text);
        struct url u;
        int r = url_parse(text, &u, e);

        if (r == 0 && strpbrk(text, "?#"))
                r = err_set(e, -EINVAL, "it takes neither query nor fragment");
        if (r == 0 && (strstr(u.path, "/../") || strstr(u.path, "/./") || strstr(u.path, "//") ||
                       str_ends(str_of(u.path), STR("/..")) || str_ends(str_of(u.path), STR("/."))))
                r = err_set(e, -EINVAL, "its path has empty or dot segments");
        if (r == 0 && is_literal(u.host))
                r = external_address_check(c, u.host, e);
        if (r < 0)
                return err_wrap(
                        e,
                        "`externalBaseUrl` must be an http:// or https:// address without credentials, got \"%.200s\"",
                        strchr(text, '@') ? "one with credentials" : text);
        while (n && text[n - 1] == '/')
                n--;
        *ret = xstrndup(text, n);
        return 0;
}

void external_name_init(struct external_name *n)
{
        waitq_init(&n->looked);
}

static bool known(const struct external_name *n, const char *host)
{
        return n->at && loop_now() - n->at < FRESH_MS && cstr_eq(n->host, host);
}

static int coroutine_fn look_up(struct external_name *n, const char *host, int64_t until, struct err *e)
{
        while (n->looking) {
                int r = waitq_wait(&n->looked, deadline_left(until));

                if (r < 0)
                        return err_sys(e, r, "waiting for another look-up");
        }
        if (known(n, host))
                return 0;
        n->looking = true;
        n->at = 0;
        (void) snprintf(n->host, sizeof n->host, "%s", host);
        int r = resolve_host(host, n->address, sizeof n->address, e);
        if (r == 0)
                n->at = loop_now();
        n->looking = false;
        waitq_wake_all(&n->looked);
        return r;
}

static int coroutine_fn address_of(struct external_name *n, const char *host, int64_t until, char ret[64],
                                   struct err *e)
{
        int r = is_literal(host) ? 0 : look_up(n, host, until, e);

        if (r == 0)
                (void) snprintf(ret, 64, "%.63s", is_literal(host) ? host : n->address);
        return r;
}

int coroutine_fn external_connect(const struct control *c, const struct url *to, struct external_name *name,
                                  struct tls_ctx **tls, struct stream **ret, struct err *e)
{
        int64_t until = deadline_in(CONNECT_MS);
        struct stream *plain = NULL;
        char address[64];
        int r = address_of(name, to->host, until, address, e);

        if (r == 0)
                r = external_address_check(c, address, e);
        if (r == 0 && to->https && !*tls)
                r = tls_ctx_client(NULL, tls, e);
        if (r == 0)
                r = stream_connect_tcp(address, to->port, deadline_left(until), &plain, e);
        if (r < 0)
                return err_wrap(e, "%s", to->host);
        if (!to->https) {
                *ret = plain;
                return 0;
        }
        r = tls_wrap(*tls, plain, to->host, deadline_left(until), ret, e);
        if (r < 0) {
                stream_close(plain);
                return err_wrap(e, "%s", to->host);
        }
        return 0;
}
