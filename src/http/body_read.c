#include "http/body_read.h"

#include <errno.h>

static ssize_t decode(struct stream *s, struct h1_body *b, char *p, size_t n)
{
        size_t at = 0, out = 0;

        while (at < n && !b->done) {
                const char *data;
                size_t len;
                long r = h1_body_feed(b, p + at, n - at, &data, &len);

                if (r < 0)
                        return r;
                if (len)
                        memmove(p + out, data, len);
                out += len;
                at += (size_t) r;
        }
        if (at < n) {
                int r = stream_unread(s, p + at, n - at);

                if (r < 0)
                        return r;
        }
        return (ssize_t) out;
}

ssize_t coroutine_fn body_read(struct stream *s, struct h1_body *b, void *p, size_t n, int64_t timeout_ms)
{
        ssize_t r = 0;

        while (r == 0 && !b->done) {
                size_t want = min_size(n, (size_t) 64 << 10); /* the most that can be put back */

                if (b->framing == H1_LENGTH && want > b->left)
                        want = (size_t) b->left;
                r = stream_read(s, p, want, timeout_ms);
                if (r == 0 && b->framing == H1_UNTIL_CLOSE) {
                        b->done = true;
                        return 0;
                }
                if (r == 0)
                        r = -EPIPE; /* cut short: never to be taken for a whole one (RFC 9112 §8) */
                if (r > 0)
                        r = decode(s, b, p, (size_t) r);
        }
        return r;
}
