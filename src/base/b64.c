#include "base/b64.h"

#include <errno.h>

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
static const char alphabet_url[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

static int encode(struct buf *out, const unsigned char *s, size_t n, const char *set, bool pad)
{
        if (n > SIZE_MAX / 4)
                return -ENOBUFS;
        size_t tail = n % 3;
        size_t len = n / 3 * 4 + (tail == 0 ? 0 : pad ? 4 : tail + 1);
        if (len == 0)
                return 0;
        /* buf_room cannot say why it refused. */
        if (len > out->max || out->len > out->max - len)
                return -ENOBUFS;
        char *d = buf_room(out, len);
        if (!d)
                return -ENOMEM;
        for (; n >= 3; n -= 3, s += 3) {
                *d++ = set[s[0] >> 2];
                *d++ = set[(s[0] & 3) << 4 | s[1] >> 4];
                *d++ = set[(s[1] & 15) << 2 | s[2] >> 6];
                *d++ = set[s[2] & 63];
        }
        if (tail) {
                unsigned second = tail == 2 ? s[1] : 0;

                *d++ = set[s[0] >> 2];
                *d++ = set[(s[0] & 3u) << 4 | second >> 4];
                if (tail == 2)
                        *d++ = set[(second & 15) << 2];
                for (size_t i = tail; pad && i < 3; i++)
                        *d++ = '=';
        }
        buf_grew(out, len);
        return 0;
}

/* The six bits of a digit, or 64 and more for anything else. */
static unsigned digit(char c, bool url)
{
        if (c >= 'A' && c <= 'Z')
                return (unsigned) (c - 'A');
        if (c >= 'a' && c <= 'z')
                return (unsigned) (c - 'a') + 26;
        if (c >= '0' && c <= '9')
                return (unsigned) (c - '0') + 52;
        if (c == (url ? '-' : '+'))
                return 62;
        if (c == (url ? '_' : '/'))
                return 63;
        return 64;
}

/* The last two or three digits; bits that belong to no byte must be zero, so every value has one spelling. */
static int decode_tail(struct str s, bool url, unsigned char *d)
{
        unsigned v[3] = { 0, 0, 0 };

        for (size_t i = 0; i < s.n; i++) {
                v[i] = digit(s.p[i], url);
                if (v[i] > 63)
                        return -EINVAL;
        }
        if (s.n == 2 ? v[1] & 15 : v[2] & 3)
                return -EINVAL;
        d[0] = (unsigned char) (v[0] << 2 | v[1] >> 4);
        if (s.n == 3)
                d[1] = (unsigned char) ((v[1] & 15) << 4 | v[2] >> 2);
        return 0;
}

/* s comes without padding. */
static int decode(struct buf *out, struct str s, bool url)
{
        size_t tail = s.n % 4;

        if (tail == 1)
                return -EINVAL;
        size_t len = s.n / 4 * 3 + (tail ? tail - 1 : 0);
        if (len == 0)
                return 0;
        if (len > out->max || out->len > out->max - len)
                return -ENOBUFS;
        unsigned char *d = (unsigned char *) buf_room(out, len);
        if (!d)
                return -ENOMEM;
        for (; s.n >= 4; s.n -= 4, s.p += 4) {
                unsigned a = digit(s.p[0], url), b = digit(s.p[1], url);
                unsigned c = digit(s.p[2], url), e = digit(s.p[3], url);

                if ((a | b | c | e) > 63)
                        return -EINVAL;
                *d++ = (unsigned char) (a << 2 | b >> 4);
                *d++ = (unsigned char) ((b & 15) << 4 | c >> 2);
                *d++ = (unsigned char) ((c & 3) << 6 | e);
        }
        int r = tail ? decode_tail(s, url, d) : 0;
        if (r == 0)
                buf_grew(out, len);
        return r;
}

int b64_encode(struct buf *out, const void *p, size_t n)
{
        return encode(out, p, n, alphabet, true);
}

int b64url_encode(struct buf *out, const void *p, size_t n)
{
        return encode(out, p, n, alphabet_url, false);
}

int b64_decode(struct buf *out, struct str s)
{
        if (s.n % 4)
                return -EINVAL;
        for (int i = 0; i < 2 && s.n && s.p[s.n - 1] == '='; i++)
                s.n--;
        return decode(out, s, false);
}

int b64url_decode(struct buf *out, struct str s)
{
        return decode(out, s, true);
}

void hex_encode(const void *p, size_t n, char *out)
{
        static const char digits[] = "0123456789abcdef";
        const unsigned char *s = p;

        for (size_t i = 0; i < n; i++) {
                *out++ = digits[s[i] >> 4];
                *out++ = digits[s[i] & 15];
        }
        *out = '\0';
}

static int hex_digit(char c)
{
        if (c >= '0' && c <= '9')
                return c - '0';
        if (c >= 'a' && c <= 'f')
                return c - 'a' + 10;
        if (c >= 'A' && c <= 'F')
                return c - 'A' + 10;
        return -1;
}

int hex_decode(struct str s, void *out, size_t n)
{
        unsigned char *d = out;

        if (s.n % 2 || s.n / 2 != n)
                return -EINVAL;
        for (size_t i = 0; i < n; i++) {
                int high = hex_digit(s.p[2 * i]), low = hex_digit(s.p[2 * i + 1]);

                if (high < 0 || low < 0)
                        return -EINVAL;
                d[i] = (unsigned char) (high << 4 | low);
        }
        return 0;
}
