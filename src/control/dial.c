#include "control/dial.h"

#include "base/mem.h"
#include "control/guest_client.h"
#include "loop/loop.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#define DIAL_MS 15000
#define ANSWER_MAX 2048u /* the one control frame of an answer; a longer one is no answer to a dial */

static int option(int fd, int level, int name)
{
        int value = -1;
        socklen_t n = sizeof value;

        return getsockopt(fd, level, name, &value, &n) < 0 ? -1 : value;
}

int dialed_socket_check(int fd, struct err *e)
{
        struct tcp_info info = { 0 };
        socklen_t n = sizeof info;
        int domain = option(fd, SOL_SOCKET, SO_DOMAIN);

        if ((domain != AF_INET && domain != AF_INET6) || option(fd, SOL_SOCKET, SO_TYPE) != SOCK_STREAM ||
            option(fd, SOL_SOCKET, SO_PROTOCOL) != IPPROTO_TCP)
                return err_set(e, -EPROTO, "the box's daemon passed something that is no TCP socket");
        if (option(fd, SOL_SOCKET, SO_ACCEPTCONN) != 0 || getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &n) < 0 ||
            (info.tcpi_state != TCP_ESTABLISHED && info.tcpi_state != TCP_CLOSE_WAIT))
                return err_set(e, -EPROTO, "the box's daemon passed a socket that is not connected");
        return 0;
}

struct answer {
        char bytes[GUEST_HEADER_LEN + ANSWER_MAX];
        size_t have;
        int fd;
};

/* One whole control frame, with the descriptor that may come beside it. */
static int coroutine_fn read_answer(struct stream *s, struct answer *a, struct json **ret, struct err *e)
{
        int64_t until = deadline_in(DIAL_MS);
        size_t need = GUEST_HEADER_LEN;
        struct guest_header h;

        while (a->have < need) {
                ssize_t n = stream_read_fd(s, a->bytes + a->have, need - a->have, &a->fd, deadline_left(until));

                if (n <= 0)
                        return err_set(e, n == 0 ? -ECONNRESET : (int) n, "the box's daemon did not answer a dial");
                a->have += (size_t) n;
                if (a->have != GUEST_HEADER_LEN || need != GUEST_HEADER_LEN)
                        continue;
                if (guest_decode((const unsigned char *) a->bytes, &h) < 0 || h.stream != GUEST_CONTROL ||
                    h.length == 0 || h.length > ANSWER_MAX)
                        return err_set(e, -EPROTO, "the box's daemon broke the protocol of a dial");
                need += h.length;
        }
        int r = json_parse(a->bytes + GUEST_HEADER_LEN, a->have - GUEST_HEADER_LEN, ret, e);
        return r < 0 ? err_wrap(e, "the box's daemon sent a broken answer") : 0;
}

/* a->fd is taken over only on success. */
static int use_passed(struct answer *a, struct stream **ret, struct err *e)
{
        int r = dialed_socket_check(a->fd, e);

        if (r == 0)
                r = stream_from_shared_fd(a->fd, ret, e);
        if (r == 0)
                a->fd = -1;
        return r;
}

static int use_answer(struct guest_op *g, struct answer *a, const struct json *answer, struct stream **ret,
                      struct err *e)
{
        if (json_get_bool(answer, "done", false)) {
                int r = guest_result_error(answer, e);

                if (r < 0)
                        return r;
                if (!json_get_bool(answer, "passed", false) || a->fd < 0)
                        return err_set(e, -EPROTO, "the box's daemon promised a connection and passed none");
                return use_passed(a, ret, e);
        }
        if (!cstr_eq(json_get_str(answer, "event", ""), "connected"))
                return err_set(e, -EPROTO, "the box's daemon broke the protocol of a dial");
        *ret = framed_stream(steal_ptr(g->s));
        return 0;
}

int coroutine_fn guest_dial(struct control *c, const char *box, uint16_t port, struct stream **ret, struct err *e)
{
        _cleanup_guest_ struct guest_op g = { 0 };
        _cleanup_json_ struct json *answer = NULL;
        _cleanup_free_ struct answer *a = xcalloc(1, sizeof *a);
        struct json *head = json_obj();

        json_set_str(head, "op", "dial");
        json_set_int(head, "port", port);
        json_set_bool(head, "pass", true);
        int r = guest_open(c, box, head, &g, e);
        if (r < 0)
                return r;
        a->fd = -1;
        r = read_answer(g.s, a, &answer, e);
        if (r == 0)
                r = use_answer(&g, a, answer, ret, e);
        if (a->fd >= 0)
                shared_fd_close(a->fd);
        return r;
}
