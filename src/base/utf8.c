#include "base/utf8.h"

/* The bytes at p that belong together: a whole sequence, or what Unicode calls the maximal subpart of a broken one. */
static size_t scan(const unsigned char *p, size_t n, bool *whole)
{
        unsigned char low = 0x80, high = 0xbf;
        size_t len;

        *whole = p[0] < 0x80;
        if (p[0] < 0xc2 || p[0] > 0xf4)
                return 1;
        len = p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;
        /* The second byte excludes overlong forms, surrogates and what lies past U+10FFFF. */
        if (p[0] == 0xe0)
                low = 0xa0;
        else if (p[0] == 0xed)
                high = 0x9f;
        else if (p[0] == 0xf0)
                low = 0x90;
        else if (p[0] == 0xf4)
                high = 0x8f;
        for (size_t i = 1; i < len; i++) {
                if (i >= n || p[i] < low || p[i] > high)
                        return i;
                low = 0x80;
                high = 0xbf;
        }
        *whole = true;
        return len;
}

/* Length of the valid prefix. */
static size_t valid_run(struct str s)
{
        const unsigned char *p = (const unsigned char *) s.p;
        size_t i = 0;

        while (i < s.n) {
                uint64_t word;
                bool whole;

                if (s.n - i >= sizeof word) {
                        memcpy(&word, p + i, sizeof word);
                        if (!(word & UINT64_C(0x8080808080808080))) {
                                i += sizeof word;
                                continue;
                        }
                }
                size_t len = scan(p + i, s.n - i, &whole);
                if (!whole)
                        return i;
                i += len;
        }
        return i;
}

bool utf8_valid(struct str s)
{
        return valid_run(s) == s.n;
}

size_t utf8_seq(struct str s)
{
        bool whole;

        if (!s.n)
                return 0;
        size_t len = scan((const unsigned char *) s.p, s.n, &whole);
        return whole ? len : 0;
}

int utf8_repair(struct buf *out, struct str s)
{
        size_t before = out->len;
        int r = 0;

        while (r == 0 && s.n) {
                size_t good = valid_run(s);
                bool whole;

                r = buf_add(out, s.p, good);
                s = str_n(s.p + good, s.n - good);
                if (r < 0 || !s.n)
                        break;
                r = buf_adds(out, "\xef\xbf\xbd");
                size_t bad = scan((const unsigned char *) s.p, s.n, &whole);
                s = str_n(s.p + bad, s.n - bad);
        }
        if (r < 0)
                out->len = before;
        return r;
}

struct str utf8_prefix(struct str s, size_t max)
{
        if (s.n <= max)
                return s;
        /* Only a sequence that starts in the last three bytes can be cut. */
        for (size_t back = 1; back <= 3 && back <= max; back++) {
                size_t at = max - back;
                size_t len = utf8_seq(str_n(s.p + at, s.n - at));

                if (len > back)
                        return str_n(s.p, at);
                if (len)
                        break;
        }
        return str_n(s.p, max);
}
