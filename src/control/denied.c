#include "control/denied.h"

#include "base/mem.h"

#include <arpa/inet.h>
#include <stdio.h>

/* What boxhost's firewall rejects (docs/boxhost.md). */
static const char *const closed[] = {
        "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16", "100.64.0.0/10", "198.18.0.0/15", NULL
};

static bool in_network(uint32_t address, const char *cidr)
{
        char text[20];
        uint64_t bits = 32;
        struct in_addr net;
        struct str rest = str_of(cidr), base = str_cut(&rest, '/');

        if (base.n >= sizeof text || (rest.n && parse_u64(rest, 32, &bits) < 0))
                return false;
        (void) snprintf(text, sizeof text, "%.*s", (int) base.n, base.p);
        if (inet_pton(AF_INET, text, &net) != 1)
                return false;
        uint32_t mask = bits ? ~UINT32_C(0) << (32 - bits) : 0;
        return (address & mask) == (ntohl(net.s_addr) & mask);
}

static bool in_any(uint32_t address, const char *const *list)
{
        for (size_t i = 0; list && list[i]; i++)
                if (in_network(address, list[i]))
                        return true;
        return false;
}

static bool address_char(char ch)
{
        return (ch >= '0' && ch <= '9') || ch == '.';
}

bool denied_address(struct str text, const char *const *allow, char out[16])
{
        for (size_t i = 0; i < text.n;) {
                size_t start = i;

                while (i < text.n && address_char(text.p[i]))
                        i++;
                size_t n = i - start;
                if (n == 0) {
                        i++;
                        continue;
                }
                struct str token = str_trim(str_n(text.p + start, n), ".");
                struct in_addr a;
                if (token.n < 7 || token.n > 15)
                        continue;
                (void) snprintf(out, 16, "%.*s", (int) token.n, token.p);
                if (inet_pton(AF_INET, out, &a) == 1 && in_any(ntohl(a.s_addr), closed) &&
                    !in_any(ntohl(a.s_addr), allow))
                        return true;
        }
        return false;
}

static bool has_any(struct str t, const char *const *words)
{
        for (size_t i = 0; words[i]; i++)
                if (str_has(t, str_of(words[i])))
                        return true;
        return false;
}

static void add(struct exec_result *ret, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void add(struct exec_result *ret, const char *fmt, ...)
{
        va_list ap;

        for (size_t i = 0; i < ARRAY_LEN(ret->denied); i++) {
                if (ret->denied[i][0])
                        continue;
                va_start(ap, fmt);
                (void) vsnprintf(ret->denied[i], sizeof ret->denied[i], fmt, ap);
                va_end(ap);
                return;
        }
}

static void explain_network(struct control *c, const char *cmd, struct str err, struct exec_result *ret)
{
        static const char *const words[] = {
                "onnection refused", "nreachable", "No route to host", "onnect to", "rohibited", "timed out", NULL
        };
        char address[16];

        if (!has_any(err, words))
                return;
        if (denied_address(err, c->cfg.allow_net, address) ||
            (cmd && denied_address(str_of(cmd), c->cfg.allow_net, address)))
                add(ret,
                    "network: %s is a private address; boxes reach the Internet, not the host's networks (the server's "
                    "--allow-net opens one)",
                    address);
}

void coroutine_fn denied_explain(struct control *c, const char *box, const char *cmd, struct exec_result *ret)
{
        static const char *const disk_words[] = { "No space left on device", "ENOSPC", "Disk quota exceeded", NULL };
        static const char *const pid_words[] = { "Resource temporarily unavailable", "annot fork", "EAGAIN",
                                                 "an't start new thread", NULL };
        _cleanup_buf_ struct buf text = BUF_MAX(OUTPUT_INLINE * 4);
        struct driver_stats st;

        (void) output_text(&ret->err, OUTPUT_INLINE, &text);
        struct str err = buf_str(&text);
        bool disk = has_any(err, disk_words), pids = has_any(err, pid_words);
        explain_network(c, cmd, err, ret);
        if ((!disk && !pids) || c->driver->ops->stats(c->driver, box, &st, NULL) < 0)
                return;
        if (disk && st.disk_used < st.disk_limit / 10 * 9)
                add(ret,
                    "disk: %lld of the box's %lld MiB are used, but the server's own disk is nearly full, or it was "
                    "/run or /dev/shm, which are small; delete files, or boxes nobody needs",
                    (long long) (st.disk_used >> 20), (long long) (st.disk_limit >> 20));
        else if (disk)
                add(ret,
                    "disk: the box's disk is full or nearly so (%lld of %lld MiB used); delete files or start a larger "
                    "size",
                    (long long) (st.disk_used >> 20), (long long) (st.disk_limit >> 20));
        if (pids)
                add(ret, "processes: the box may have %lld processes at once (%lld now)", (long long) st.pids_limit,
                    (long long) st.pids_used);
}
