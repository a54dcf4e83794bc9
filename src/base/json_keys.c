#include "base/json_keys.h"
#include "base/b64.h"
#include "base/hash.h"

#include <errno.h>
#include <stdlib.h>

void json_keys_init(struct json_keys *k, struct str text)
{
        *k = (struct json_keys){ .text = text.p, .decoded = BUF_MAX(text.n) };
}

void json_keys_done(struct json_keys *k)
{
        free(k->v);
        free(k->slots);
        buf_done(&k->decoded);
}

static unsigned unit_at(const char *hex)
{
        unsigned char b[2] = { 0, 0 };

        (void) hex_decode(str_n(hex, 4), b, sizeof b); /* the scan has seen that they are digits */
        return (unsigned) b[0] << 8 | b[1];
}

static int add_utf8(struct buf *out, unsigned c)
{
        char s[4];
        size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
        static const unsigned char lead[] = { 0, 0, 0xc0, 0xe0, 0xf0 };

        for (size_t i = n - 1; i > 0; i--, c >>= 6)
                s[i] = (char) (0x80 | (c & 0x3f));
        s[0] = (char) (lead[n] | c);
        return buf_add(out, s, n);
}

static int decode_unit(struct buf *out, struct str *raw)
{
        unsigned c = unit_at(raw->p + 2);
        size_t used = 6;

        if (c >= 0xd800 && c < 0xdc00) {
                c = 0x10000 + ((c - 0xd800) << 10) + (unit_at(raw->p + 8) - 0xdc00);
                used = 12;
        }
        *raw = str_n(raw->p + used, raw->n - used);
        return add_utf8(out, c);
}

static int decode(struct buf *out, struct str raw)
{
        static const char letter[] = "bfnrt", meaning[] = "\b\f\n\r\t";
        int r = 0;

        while (r == 0 && raw.n) {
                if (raw.p[0] != '\\') {
                        r = buf_addc(out, raw.p[0]);
                        raw = str_n(raw.p + 1, raw.n - 1);
                } else if (raw.p[1] == 'u') {
                        r = decode_unit(out, &raw);
                } else {
                        const char *at = strchr(letter, raw.p[1]);

                        r = buf_addc(out, at ? meaning[at - letter] : raw.p[1]);
                        raw = str_n(raw.p + 2, raw.n - 2);
                }
        }
        return r;
}

static struct str key_text(const struct json_keys *k, const struct json_key *key)
{
        return str_n((key->decoded ? k->decoded.p : k->text) + key->at, key->n);
}

static size_t next_slot(const struct json_keys *k, size_t i)
{
        return (i + 1) & (k->n_slots - 1);
}

static void insert(struct json_keys *k, size_t index)
{
        size_t i = k->v[index].hash & (k->n_slots - 1);

        while (k->slots[i])
                i = next_slot(k, i);
        k->slots[i] = (uint32_t) index + 1;
}

static int reserve(struct json_keys *k)
{
        if (k->len < k->cap)
                return 0;
        size_t cap = k->cap ? k->cap * 2 : 32;
        struct json_key *v = try_realloc(k->v, cap * sizeof *v);
        if (!v)
                return -ENOMEM;
        k->v = v;
        uint32_t *slots = try_malloc(cap * 2 * sizeof *slots);
        if (!slots)
                return -ENOMEM;
        memset(slots, 0, cap * 2 * sizeof *slots);
        free(k->slots);
        k->slots = slots;
        k->n_slots = cap * 2;
        k->cap = cap;
        /* In the order of their numbers, which json_keys_drop relies on. */
        for (size_t i = 0; i < k->len; i++)
                insert(k, i);
        return 0;
}

static bool has(const struct json_keys *k, const struct json_key *key, size_t first)
{
        struct str s = key_text(k, key);

        for (size_t i = key->hash & (k->n_slots - 1); k->slots[i]; i = next_slot(k, i)) {
                size_t index = k->slots[i] - 1;

                if (index >= first && k->v[index].hash == key->hash && str_eq(key_text(k, &k->v[index]), s))
                        return true;
        }
        return false;
}

int json_keys_add(struct json_keys *k, struct str raw, bool escaped, size_t first)
{
        struct json_key key = { .at = (uint32_t) (raw.p - k->text), .n = (uint32_t) raw.n, .decoded = escaped };
        int r = reserve(k);

        if (r == 0 && escaped) {
                key.at = (uint32_t) k->decoded.len;
                r = decode(&k->decoded, raw);
                key.n = (uint32_t) (k->decoded.len - key.at);
        }
        if (r < 0)
                return r;
        struct str s = key_text(k, &key);
        /* json-c holds keys as C strings and would cut this one, perhaps into a duplicate. */
        if (s.n && memchr(s.p, '\0', s.n))
                return -EILSEQ;
        /* Without first, the same key at every level of a deep text would fall into one place. */
        key.hash = hash_bytes(s.p, s.n) + first;
        if (has(k, &key, first))
                return -EEXIST;
        k->v[k->len] = key;
        insert(k, k->len++);
        return 0;
}

void json_keys_drop(struct json_keys *k, size_t first)
{
        /* Last in, first out: taking back the latest insertion leaves every probe sequence as it was before. */
        while (k->len > first) {
                const struct json_key *key = &k->v[--k->len];
                size_t i = key->hash & (k->n_slots - 1);

                while (k->slots[i] != (uint32_t) k->len + 1)
                        i = next_slot(k, i);
                k->slots[i] = 0;
                if (key->decoded)
                        k->decoded.len = key->at;
        }
}
