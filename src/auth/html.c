#include "auth/html.h"

#include "base/utf8.h"

#define REPLACEMENT "\xef\xbf\xbd"

static const char *reference(char c)
{
        switch (c) {
        case '&':
                return "&amp;";
        case '<':
                return "&lt;";
        case '>':
                return "&gt;";
        case '"':
                return "&quot;";
        case '\'':
                return "&#39;";
        case '`':
                return "&#96;";
        default:
                return NULL;
        }
}

/* U+200E, U+200F, U+202A–U+202E, U+2066–U+2069 (Unicode UAX #9), and U+2028, U+2029. */
static bool turns_text(const unsigned char *p, size_t n)
{
        if (n != 3 || p[0] != 0xe2)
                return false;
        if (p[1] == 0x80)
                return p[2] == 0x8e || p[2] == 0x8f || (p[2] >= 0xa8 && p[2] <= 0xae);
        return p[1] == 0x81 && p[2] >= 0xa6 && p[2] <= 0xa9;
}

int html_escape(struct buf *out, struct str s)
{
        size_t before = out->len;
        int r = 0;

        while (r == 0 && s.n) {
                size_t n = utf8_seq(s);
                unsigned char c = (unsigned char) s.p[0];
                const char *ref = n == 1 ? reference(s.p[0]) : NULL;

                if (ref)
                        r = buf_adds(out, ref);
                else if (n == 0 || c == 0x7f || (c < 0x20 && c != '\n' && c != '\t') ||
                         turns_text((const unsigned char *) s.p, n))
                        r = buf_adds(out, REPLACEMENT);
                else
                        r = buf_add(out, s.p, n);
                s = str_n(s.p + (n ? n : 1), s.n - (n ? n : 1));
        }
        if (r < 0)
                out->len = before;
        return r;
}
