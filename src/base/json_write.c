#include "base/b64.h"
#include "base/json.h"
#include "base/mask.h"
#include "base/utf8.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

void jw_init(struct jw *w, struct buf *b)
{
        *w = (struct jw){ .b = b };
}

static void fail(struct jw *w, int r)
{
        if (w->r == 0)
                w->r = r;
}

static void put(struct jw *w, struct str s)
{
        if (w->r == 0)
                w->r = buf_addstr(w->b, s);
}

static uint64_t level_bit(const struct jw *w)
{
        return UINT64_C(1) << (w->depth - 1);
}

/* The comma between items; false when something failed before. */
static bool separate(struct jw *w)
{
        if (w->depth == 0)
                return w->r == 0;
        if (w->has_item & level_bit(w))
                put(w, STR(","));
        w->has_item |= level_bit(w);
        return w->r == 0;
}

/* What must come before any value: a key in an object, a comma in an array. */
static bool begin_value(struct jw *w)
{
        if (w->after_key) {
                w->after_key = false;
                return w->r == 0;
        }
        if (w->depth && (w->is_obj & level_bit(w))) {
                fail(w, -EINVAL);
                return false;
        }
        return separate(w);
}

static void open_level(struct jw *w, bool obj)
{
        if (!begin_value(w))
                return;
        if (w->depth == JSON_DEPTH_MAX) {
                fail(w, -EINVAL);
                return;
        }
        w->depth++;
        w->has_item &= ~level_bit(w);
        w->is_obj = obj ? w->is_obj | level_bit(w) : w->is_obj & ~level_bit(w);
        put(w, obj ? STR("{") : STR("["));
}

void jw_obj(struct jw *w)
{
        open_level(w, true);
}

void jw_arr(struct jw *w)
{
        open_level(w, false);
}

void jw_end(struct jw *w)
{
        if (w->r < 0)
                return;
        if (w->depth == 0 || w->after_key) {
                fail(w, -EINVAL);
                return;
        }
        put(w, w->is_obj & level_bit(w) ? STR("}") : STR("]"));
        w->depth--;
}

static bool is_plain(char c)
{
        return (unsigned char) c >= 0x20 && c != '"' && c != '\\';
}

static void put_escape(struct jw *w, char c)
{
        static const char special[] = "\"\\\b\f\n\r\t", letter[] = "\"\\bfnrt";
        char text[7];
        const char *at = c ? strchr(special, c) : NULL;

        if (at)
                (void) snprintf(text, sizeof text, "\\%c", letter[at - special]);
        else
                (void) snprintf(text, sizeof text, "\\u%04x", (unsigned char) c);
        put(w, str_of(text));
}

static void put_string(struct jw *w, struct str s)
{
        put(w, STR("\""));
        while (s.n && w->r == 0) {
                size_t n = 0;

                while (n < s.n && is_plain(s.p[n]))
                        n++;
                /* Escaped bytes are ASCII, so a run never ends inside a valid sequence. */
                if (n && w->r == 0)
                        w->r = utf8_repair(w->b, str_n(s.p, n));
                if (n < s.n)
                        put_escape(w, s.p[n++]);
                s = str_n(s.p + n, s.n - n);
        }
        put(w, STR("\""));
}

void jw_key(struct jw *w, const char *key)
{
        if (w->r < 0)
                return;
        if (w->after_key || w->depth == 0 || !(w->is_obj & level_bit(w))) {
                fail(w, -EINVAL);
                return;
        }
        if (!separate(w))
                return;
        put_string(w, str_of(key));
        put(w, STR(":"));
        w->after_key = true;
}

void jw_str(struct jw *w, const char *s)
{
        if (s)
                jw_strn(w, str_of(s));
        else
                jw_null(w);
}

void jw_strn(struct jw *w, struct str s)
{
        _cleanup_buf_ struct buf masked = BUF_MAX(w->b->max);

        if (!begin_value(w))
                return;
        if (!w->mask)
                put_string(w, s);
        else if ((w->r = mask_text(w->mask, s, 0, &masked)) == 0)
                put_string(w, buf_str(&masked));
}

void jw_raw(struct jw *w, struct str s)
{
        if (begin_value(w))
                put(w, s);
}

void jw_int(struct jw *w, int64_t v)
{
        char text[24];

        (void) snprintf(text, sizeof text, "%lld", (long long) v);
        jw_raw(w, str_of(text));
}

static uint64_t bits_of(double v)
{
        union {
                double d;
                uint64_t u;
        } both = { v };

        return both.u;
}

void jw_double(struct jw *w, double v)
{
        char text[40];

        if (!isfinite(v)) {
                jw_null(w);
                return;
        }
        /* The shortest of the three that reads back as the same number; 17 digits always do. */
        for (int digits = 15; digits <= 17; digits++) {
                (void) snprintf(text, sizeof text, "%.*g", digits, v);
                double back = strtod(text, NULL);
                if (bits_of(back) == bits_of(v)) /* -0 is not 0 here */
                        break;
        }
        jw_raw(w, str_of(text));
}

void jw_bool(struct jw *w, bool v)
{
        jw_raw(w, v ? STR("true") : STR("false"));
}

void jw_null(struct jw *w)
{
        jw_raw(w, STR("null"));
}

void jw_b64(struct jw *w, const void *p, size_t n)
{
        if (!begin_value(w))
                return;
        put(w, STR("\""));
        if (w->r == 0)
                w->r = b64_encode(w->b, p, n);
        put(w, STR("\""));
}

int jw_end_all(struct jw *w)
{
        while (w->r == 0 && w->depth)
                jw_end(w);
        return w->r;
}

void jw_kstr(struct jw *w, const char *key, const char *s)
{
        jw_key(w, key);
        jw_str(w, s);
}

void jw_kstrn(struct jw *w, const char *key, struct str s)
{
        jw_key(w, key);
        jw_strn(w, s);
}

void jw_kint(struct jw *w, const char *key, int64_t v)
{
        jw_key(w, key);
        jw_int(w, v);
}

void jw_kbool(struct jw *w, const char *key, bool v)
{
        jw_key(w, key);
        jw_bool(w, v);
}

void jw_kobj(struct jw *w, const char *key)
{
        jw_key(w, key);
        jw_obj(w);
}

void jw_karr(struct jw *w, const char *key)
{
        jw_key(w, key);
        jw_arr(w);
}
