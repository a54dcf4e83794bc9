#include "base/mask_forms.h"

#include "base/b64.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/seal.h"
#include "base/utf8.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define LINE_MIN 12 /* shorter lines of a longer value are found by chance */

/* Every spelling is built here and wiped again. None is longer than six times the value and a little. */
struct scratch {
        struct buf b;
};

static void scratch_done(struct scratch *s)
{
        if (s->b.p)
                mem_wipe(s->b.p, s->b.cap);
        buf_done(&s->b);
}

static int put_json(struct buf *b, struct str value)
{
        struct jw w;

        buf_clear(b);
        jw_init(&w, b);
        jw_arr(&w);
        jw_strn(&w, value);
        return jw_end_all(&w);
}

/* What is between [" and "]. */
static struct str inside(const struct buf *b)
{
        return b->len < 4 ? str_n(NULL, 0) : str_n(b->p + 2, b->len - 4);
}

static int add_utf16(struct buf *b, uint32_t c)
{
        if (c < 0x10000)
                return buf_addf(b, "\\u%04x", (unsigned) c);
        c -= 0x10000;
        return buf_addf(b, "\\u%04x\\u%04x", (unsigned) (0xd800 + (c >> 10)), (unsigned) (0xdc00 + (c & 0x3ff)));
}

/* As writers of pure ASCII escape what is not. s is valid UTF-8. */
static int put_json_ascii(struct buf *b, struct str s)
{
        int r = 0;

        buf_clear(b);
        while (s.n && r == 0) {
                size_t n = max_size(utf8_seq(s), 1);
                uint32_t c = (unsigned char) s.p[0];

                if (n == 1)
                        r = buf_addc(b, s.p[0]);
                else {
                        c &= (uint32_t) 0xff >> (n + 1);
                        for (size_t i = 1; i < n; i++)
                                c = c << 6 | ((unsigned char) s.p[i] & 0x3f);
                        r = add_utf16(b, c);
                }
                s = str_n(s.p + n, s.n - n);
        }
        return r;
}

static int put_percent(struct buf *b, struct str s, const char *safe, bool plus, bool upper)
{
        int r = 0;

        buf_clear(b);
        for (size_t i = 0; i < s.n && r == 0; i++) {
                char c = s.p[i];

                if (c == ' ' && plus)
                        r = buf_addc(b, '+');
                else if (c_is_alnum(c) || (c && strchr(safe, c)))
                        r = buf_addc(b, c);
                else
                        r = buf_addf(b, upper ? "%%%02X" : "%%%02x", (unsigned) (unsigned char) c);
        }
        return r;
}

/* What encoders leave as it is differs: RFC 3986, encodeURIComponent, encodeURI, Python's quote, HTML forms. */
static int add_percent(struct buf *b, struct str value, uint16_t rule, struct trie *t)
{
        static const struct {
                const char *safe;
                bool plus;
        } kinds[] = { { "-._~", false },  { "-._~!*'()", false }, { "-._~!*'();/?:@&=+$,#", false },
                      { "-._~/", false }, { "*-._", true },       { "-._~", true } };
        int r = 0;

        for (size_t i = 0; i < 2 * ARRAY_LEN(kinds) && r == 0; i++) {
                r = put_percent(b, value, kinds[i / 2].safe, kinds[i / 2].plus, i & 1);
                if (r == 0)
                        r = trie_add(t, buf_str(b), rule);
        }
        return r;
}

/* Inside $'…' of a shell and in the literals of many languages: with ' escaped, or as it is. */
static int add_literal(struct buf *b, struct str value, uint16_t rule, struct trie *t)
{
        static const char special[] = "\\\n\t\r'", letter[] = "\\ntr'";
        int r = 0;

        for (size_t quoted = 0; quoted < 2 && r == 0; quoted++) {
                buf_clear(b);
                for (size_t i = 0; i < value.n && r == 0; i++) {
                        const char *at = value.p[i] ? strchr(special, value.p[i]) : NULL;

                        if (at && (quoted || *at != '\''))
                                r = buf_addf(b, "\\%c", letter[at - special]);
                        else
                                r = buf_addc(b, value.p[i]);
                }
                if (r == 0)
                        r = trie_add(t, buf_str(b), rule);
        }
        return r;
}

/* Inside "…" and inside '…', as a shell prints its variables and traces its commands. */
static int add_shell(struct buf *b, struct str value, uint16_t rule, struct trie *t)
{
        int r = add_literal(b, value, rule, t);

        buf_clear(b);
        for (size_t i = 0; i < value.n && r == 0; i++) {
                if (value.p[i] && strchr("\\$`\"", value.p[i]))
                        r = buf_addc(b, '\\');
                if (r == 0)
                        r = buf_addc(b, value.p[i]);
        }
        if (r == 0)
                r = trie_add(t, buf_str(b), rule);
        buf_clear(b);
        for (size_t i = 0; i < value.n && r == 0; i++)
                r = value.p[i] == '\'' ? buf_adds(b, "'\\''") : buf_addc(b, value.p[i]);
        return r < 0 ? r : trie_add(t, buf_str(b), rule);
}

static int add_lines(struct str value, uint16_t rule, struct trie *t)
{
        struct str rest = value;
        int r = 0;

        while (rest.n && r == 0) {
                struct str line = str_trim(str_cut(&rest, '\n'), "\r");

                if (line.n >= LINE_MIN)
                        r = trie_add(t, line, rule);
        }
        return r;
}

/*
 * A value that k bytes stand before, in a text that is encoded as a whole: the characters that the value alone decides.
 */
static int add_base64(struct buf *b, struct str value, uint16_t rule, struct trie *t)
{
        size_t len = value.n + 2;
        char *raw = xcalloc(1, len);
        int r = 0;

        memcpy(raw + 2, value.p, value.n);
        for (size_t k = 0; k < 3 && r == 0; k++)
                for (int url = 0; url < 2 && r == 0; url++) {
                        size_t from = (8 * k + 5) / 6, to = 8 * (k + value.n) / 6;

                        buf_clear(b);
                        r = (url ? b64url_encode : b64_encode)(b, raw + 2 - k, value.n + k);
                        if (r == 0)
                                r = trie_add(t, str_n(b->p + from, to - from), rule);
                }
        mem_wipe(raw, len);
        free(raw);
        return r;
}

static int add_hex(struct buf *b, struct str value, uint16_t rule, struct trie *t)
{
        int r = 0;

        for (int upper = 0; upper < 2 && r == 0; upper++) {
                buf_clear(b);
                for (size_t i = 0; i < value.n && r == 0; i++)
                        r = buf_addf(b, upper ? "%02X" : "%02x", (unsigned) (unsigned char) value.p[i]);
                if (r == 0)
                        r = trie_add(t, buf_str(b), rule);
        }
        return r;
}

int mask_forms(struct str value, uint16_t rule, struct trie *exact, struct trie *wrapped)
{
        _cleanup_(scratch_done) struct scratch s = { BUF_MAX(8 * value.n + 64) };
        struct buf *b = &s.b;

        if (!buf_room(b, 8 * value.n + 64)) /* once, so that no copy is left where it grew */
                return -ENOMEM;
        int r = trie_add(exact, value, rule);
        if (r == 0)
                r = add_lines(value, rule, exact);
        if (r == 0)
                r = put_json(b, value);
        if (r == 0)
                r = trie_add(exact, inside(b), rule);
        if (r == 0) {
                _cleanup_(scratch_done) struct scratch plain = { BUF_MAX(8 * value.n + 64) };

                if (!buf_room(&plain.b, b->len) || buf_addstr(&plain.b, inside(b)) < 0)
                        return -ENOMEM;
                r = put_json_ascii(b, buf_str(&plain.b));
                if (r == 0)
                        r = trie_add(exact, buf_str(b), rule);
        }
        if (r == 0)
                r = add_shell(b, value, rule, exact);
        if (r == 0)
                r = add_percent(b, value, rule, exact);
        if (r == 0)
                r = add_base64(b, value, rule, wrapped);
        return r < 0 ? r : add_hex(b, value, rule, wrapped);
}
