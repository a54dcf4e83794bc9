#include "guest/tar.h"

#include <errno.h>
#include <string.h>

/* Field offsets of the ustar header (POSIX.1-2001, pax interchange format). */
enum {
        F_NAME = 0,
        F_MODE = 100,
        F_UID = 108,
        F_GID = 116,
        F_SIZE = 124,
        F_MTIME = 136,
        F_SUM = 148,
        F_TYPE = 156,
        F_LINK = 157,
        F_MAGIC = 257,
        F_PREFIX = 345,
        F_GNU_EXTENDED = 482,    /* old GNU sparse header: more sparse blocks follow */
        F_SPARSE_EXTENDED = 504, /* the same flag inside such a block */
};

enum { S_HEADER, S_DATA, S_PADDING, S_COLLECT, S_PAX, S_SKIP, S_SPARSE, S_EOF, S_DEAD };
enum { PAX_LENGTH, PAX_KEY, PAX_VALUE };

#define SIZE_LIMIT ((uint64_t) 1 << 60)

static int broken(struct tar_reader *r, const char *why)
{
        r->state = S_DEAD;
        r->why = why;
        return -EPROTO;
}

void tar_reader_init(struct tar_reader *r)
{
        memset(r, 0, sizeof(*r));
        r->state = S_HEADER;
}

/* Octal with leading spaces, ended by a space, a NUL or the field; or base-256 (GNU) when the top bit is set. */
static int parse_number(const unsigned char *p, size_t n, int64_t *ret)
{
        uint64_t v = 0;
        size_t i = 0;

        if (p[0] & 0x80) {
                bool negative = p[0] & 0x40;

                v = negative ? UINT64_MAX : 0;
                for (i = 0; i < n; i++) {
                        unsigned char c = i == 0 ? (unsigned char) (negative ? p[0] : p[0] & 0x3f) : p[i];

                        /* Everything above the low 64 bits must be sign. */
                        if (n - i > 8 && c != (negative ? 0xff : 0))
                                return -ERANGE;
                        v = (v << 8) | c;
                }
                if (((int64_t) v < 0) != negative)
                        return -ERANGE;
                *ret = (int64_t) v;
                return 0;
        }
        while (i < n && p[i] == ' ')
                i++;
        for (; i < n && p[i] != ' ' && p[i] != '\0'; i++) {
                if (p[i] < '0' || p[i] > '7')
                        return -EINVAL;
                v = (v << 3) | (unsigned) (p[i] - '0');
        }
        *ret = (int64_t) v; /* 12 octal digits fit in 36 bits */
        return 0;
}

static bool checksum_ok(const unsigned char *b)
{
        int64_t want;
        long sum = 0, signed_sum = 0;

        if (parse_number(b + F_SUM, 8, &want) < 0)
                return false;
        for (size_t i = 0; i < TAR_BLOCK; i++) {
                unsigned char c = i >= F_SUM && i < F_SUM + 8 ? ' ' : b[i];

                sum += c;
                signed_sum += (signed char) c; /* what some old writers computed */
        }
        return want == sum || want == signed_sum;
}

static void name_clear(struct tar_name *n)
{
        n->set = n->too_long = false;
        n->len = 0;
}

static void name_add(struct tar_name *n, const char *p, size_t len)
{
        size_t room = TAR_NAME_MAX - n->len;

        if (len > room) {
                n->too_long = true;
                len = room;
        }
        memcpy(n->text + n->len, p, len);
        n->len += len;
        n->text[n->len] = '\0';
}

static void name_field(struct tar_name *n, const unsigned char *p, size_t max)
{
        name_add(n, (const char *) p, strnlen((const char *) p, max));
}

static void clear_pending(struct tar_reader *r)
{
        name_clear(&r->path);
        name_clear(&r->link);
        r->sparse = r->pax_size_set = r->pax_mtime_set = false;
}

static bool all_zero(const unsigned char *b)
{
        for (size_t i = 0; i < TAR_BLOCK; i++)
                if (b[i])
                        return false;
        return true;
}

static enum tar_type type_of(char flag, bool dir_name)
{
        switch (flag) {
        case '\0':
        case '0':
        case '7':
                return dir_name ? TAR_DIR : TAR_FILE;
        case '1':
                return TAR_HARDLINK;
        case '2':
                return TAR_SYMLINK;
        case '5':
                return TAR_DIR;
        default:
                return TAR_OTHER;
        }
}

static bool has_body(char flag)
{
        return !(flag == '2' || flag == '3' || flag == '4' || flag == '5' || flag == '6');
}

/* The names of the entry: pending long ones win over the fields of the header. */
static void take_names(struct tar_reader *r)
{
        const unsigned char *b = r->block;

        if (!r->path.set) {
                bool ustar = memcmp(b + F_MAGIC, "ustar\0", 6) == 0; /* GNU's "ustar  " uses the prefix otherwise */

                name_clear(&r->path);
                if (ustar && b[F_PREFIX]) {
                        name_field(&r->path, b + F_PREFIX, 155);
                        name_add(&r->path, "/", 1);
                }
                name_field(&r->path, b + F_NAME, 100);
        }
        if (!r->link.set) {
                name_clear(&r->link);
                name_field(&r->link, b + F_LINK, 100);
        }
        r->path.text[r->path.len] = r->link.text[r->link.len] = '\0';
}

static int start_entry(struct tar_reader *r, int64_t size, int64_t mode, int64_t mtime)
{
        char flag = (char) r->block[F_TYPE];
        struct tar_entry *e = &r->entry;

        take_names(r);
        memset(e, 0, sizeof(*e));
        e->flag = flag;
        e->path = r->path.text;
        e->path_len = r->path.len;
        e->link = r->link.text;
        e->link_len = r->link.len;
        e->type = type_of(flag, e->path_len && e->path[e->path_len - 1] == '/');
        e->mode = (unsigned) mode & 07777;
        e->mtime = r->pax_mtime_set ? r->pax_mtime : mtime;
        uint64_t body = r->pax_size_set ? r->pax_size : (uint64_t) size;
        /* A hard link's size field tells its target's size in old archives; content follows in pax ones only. */
        if (!has_body(flag) || (flag == '1' && !r->seen_pax))
                body = 0;
        if (r->path.too_long || r->link.too_long)
                e->bad = "its name is longer than 4096 bytes";
        else if (memchr(e->path, '\0', e->path_len) || memchr(e->link, '\0', e->link_len))
                e->bad = "its name holds a NUL byte";
        else if (r->sparse || flag == 'S')
                e->bad = "it is a sparse file";
        if (e->bad)
                e->type = TAR_OTHER;
        r->discard = e->type != TAR_FILE;
        e->size = r->discard ? 0 : body;
        r->left = body;
        r->padding = tar_padding(body);
        r->state = S_DATA;
        if (flag == 'S' && r->block[F_GNU_EXTENDED])
                r->state = S_SPARSE;
        r->have = 0;
        return TAR_HEADER;
}

static void start_pax(struct tar_reader *r, bool global)
{
        memset(&r->pax, 0, sizeof(r->pax));
        r->pax.global = global;
        r->pax.state = PAX_LENGTH;
        r->state = S_PAX;
        r->seen_pax = true;
}

/* A complete header block is in r->block. Returns an event, 0 (TAR_MORE) to go on reading, or an error. */
static int on_block(struct tar_reader *r, bool *again)
{
        const unsigned char *b = r->block;
        int64_t size, mode, mtime;

        *again = true;
        r->have = 0;
        if (all_zero(b)) {
                if (++r->zeros < 2)
                        return TAR_MORE;
                r->state = S_EOF;
                *again = false;
                return TAR_EOF;
        }
        if (r->zeros)
                return broken(r, "a block of zeros inside the archive");
        if (!checksum_ok(b))
                return broken(r, "a header's checksum is wrong: this is no tar archive, or it is damaged");
        if (parse_number(b + F_SIZE, 12, &size) < 0 || size < 0 || (uint64_t) size > SIZE_LIMIT)
                return broken(r, "a header's size field is invalid");
        if (parse_number(b + F_MODE, 8, &mode) < 0)
                return broken(r, "a header's mode field is invalid");
        if (parse_number(b + F_MTIME, 12, &mtime) < 0)
                mtime = 0;
        switch (b[F_TYPE]) {
        case 'x':
        case 'X':
        case 'g':
        case 'L':
        case 'K':
                if (size > TAR_EXTENDED_MAX)
                        return broken(r, "an extended header is larger than 1 MiB");
                r->left = (uint64_t) size;
                r->padding = tar_padding((uint64_t) size);
                if (b[F_TYPE] == 'L' || b[F_TYPE] == 'K') {
                        r->collect = b[F_TYPE] == 'L' ? &r->path : &r->link;
                        name_clear(r->collect);
                        r->collect->set = true;
                        r->state = S_COLLECT;
                } else {
                        start_pax(r, b[F_TYPE] == 'g');
                }
                return TAR_MORE;
        default:
                *again = false;
                return start_entry(r, size, mode, mtime);
        }
}

static struct str take(struct str *in, uint64_t max)
{
        struct str s = str_n(in->p, in->n < max ? in->n : (size_t) max);

        in->p += s.n;
        in->n -= s.n;
        return s;
}

/* "123", "123.456", "-5": whole seconds, rounded down. */
static bool pax_seconds(const char *p, size_t n, int64_t *ret)
{
        bool negative = n && p[0] == '-';
        size_t i = negative, digits = 0;
        int64_t v = 0;

        for (; i < n && p[i] >= '0' && p[i] <= '9' && digits < 18; i++, digits++)
                v = v * 10 + (p[i] - '0');
        if (!digits || (i < n && p[i] != '.'))
                return false;
        *ret = negative ? -v : v;
        return true;
}

static int pax_record_end(struct tar_reader *r)
{
        const char *key = r->pax.key;
        struct str num = str_n(r->pax.num, r->pax.num_len);

        if (r->pax.global)
                return 0; /* path or size for every entry make no sense; comments do not matter */
        if (strcmp(key, "size") == 0) {
                uint64_t v;

                if (parse_u64(num, SIZE_LIMIT, &v) < 0)
                        return broken(r, "a pax size is invalid");
                r->pax_size = v;
                r->pax_size_set = true;
        } else if (strcmp(key, "mtime") == 0) {
                r->pax_mtime_set = pax_seconds(num.p, num.n, &r->pax_mtime);
        } else if (strncmp(key, "GNU.sparse.", 11) == 0) {
                r->sparse = true;
        }
        return 0;
}

static void pax_key_done(struct tar_reader *r)
{
        struct tar_name *n = NULL;

        r->pax.key[r->pax.key_len < sizeof(r->pax.key) ? r->pax.key_len : sizeof(r->pax.key) - 1] = '\0';
        if (strcmp(r->pax.key, "path") == 0)
                n = &r->path;
        else if (strcmp(r->pax.key, "linkpath") == 0)
                n = &r->link;
        if (n && !r->pax.global) {
                name_clear(n);
                n->set = true;
        }
        r->pax.num_len = 0;
        r->pax.state = PAX_VALUE;
}

static void pax_value(struct tar_reader *r, struct str v)
{
        size_t room = sizeof(r->pax.num) - r->pax.num_len;

        if (r->pax.global)
                return;
        if (strcmp(r->pax.key, "path") == 0)
                name_add(&r->path, v.p, v.n);
        else if (strcmp(r->pax.key, "linkpath") == 0)
                name_add(&r->link, v.p, v.n);
        else {
                memcpy(r->pax.num + r->pax.num_len, v.p, min_size(v.n, room));
                r->pax.num_len += min_size(v.n, room);
        }
}

/* One byte of "<length> " or "<key>=". */
static int pax_byte(struct tar_reader *r, char c)
{
        r->pax.used++;
        if (r->pax.state == PAX_LENGTH) {
                if (c == ' ' && r->pax.used > 1) {
                        r->pax.state = PAX_KEY;
                        r->pax.key_len = 0;
                        return 0;
                }
                if (c < '0' || c > '9' || r->pax.used > 8)
                        return broken(r, "a pax record has no length");
                r->pax.length = r->pax.length * 10 + (unsigned) (c - '0');
                return 0;
        }
        if (r->pax.used >= r->pax.length)
                return broken(r, "a pax record has no '='");
        if (c == '=') {
                pax_key_done(r);
                return 0;
        }
        if (r->pax.key_len < sizeof(r->pax.key))
                r->pax.key[r->pax.key_len++] = c; /* a longer key is none of ours: cut is fine */
        return 0;
}

static int pax_feed(struct tar_reader *r, struct str s)
{
        while (s.n) {
                if (r->pax.state != PAX_VALUE) {
                        struct str one = take(&s, 1);
                        int e = pax_byte(r, one.p[0]);

                        if (e < 0)
                                return e;
                        continue;
                }
                if (r->pax.length <= r->pax.used)
                        return broken(r, "a pax record's length is wrong");
                uint64_t rest = r->pax.length - r->pax.used; /* value and its newline */
                struct str v = take(&s, rest > 1 ? rest - 1 : 1);
                r->pax.used += v.n;
                if (rest > 1) {
                        pax_value(r, v);
                        continue;
                }
                if (v.p[0] != '\n')
                        return broken(r, "a pax record does not end with a line break");
                int e = pax_record_end(r);
                if (e < 0)
                        return e;
                r->pax.state = PAX_LENGTH;
                r->pax.used = r->pax.length = 0;
        }
        return 0;
}

static void collected(struct tar_reader *r)
{
        struct tar_name *n = r->collect;

        /* GNU ends the name with a NUL; what follows is nothing. */
        n->len = strnlen(n->text, n->len);
        r->collect = NULL;
}

static int end_extended(struct tar_reader *r)
{
        if (r->state == S_COLLECT)
                collected(r);
        else if (r->pax.state != PAX_LENGTH || r->pax.used)
                return broken(r, "a pax header ends inside a record");
        r->left = r->padding;
        r->state = S_SKIP;
        return 0;
}

/* The body of an extended header, or its padding. */
static int read_extended(struct tar_reader *r, struct str *in)
{
        struct str s = take(in, r->left);
        int e = 0;

        r->left -= s.n;
        if (r->state == S_PAX)
                e = pax_feed(r, s);
        else if (r->state == S_COLLECT)
                name_add(r->collect, s.p, s.n);
        if (e < 0 || r->left)
                return e;
        if (r->state == S_SKIP) {
                r->state = S_HEADER;
                return 0;
        }
        return end_extended(r);
}

static bool fill_block(struct tar_reader *r, struct str *in)
{
        struct str s = take(in, TAR_BLOCK - r->have);

        memcpy(r->block + r->have, s.p ? s.p : "", s.n);
        r->have += s.n;
        return r->have == TAR_BLOCK;
}

static int read_content(struct tar_reader *r, struct str *in, struct str *data, bool *again)
{
        *again = false;
        if (r->state == S_DATA && r->left == 0) {
                r->state = S_PADDING;
                r->left = r->padding;
                clear_pending(r);
                return TAR_END;
        }
        if (r->state == S_PADDING && r->left == 0) {
                r->state = S_HEADER;
                *again = true;
                return TAR_MORE;
        }
        if (in->n == 0)
                return TAR_MORE;
        struct str s = take(in, r->left);
        r->left -= s.n;
        *again = true;
        if (r->state == S_PADDING || r->discard)
                return TAR_MORE;
        *data = s;
        *again = false;
        return TAR_DATA;
}

int tar_read(struct tar_reader *r, struct str *in, struct str *data)
{
        for (;;) {
                bool again = true;
                int e = TAR_MORE;

                switch (r->state) {
                case S_HEADER:
                        if (!fill_block(r, in))
                                return TAR_MORE;
                        e = on_block(r, &again);
                        break;
                case S_SPARSE:
                        if (!fill_block(r, in))
                                return TAR_MORE;
                        r->have = 0;
                        if (!r->block[F_SPARSE_EXTENDED])
                                r->state = S_DATA;
                        break;
                case S_DATA:
                case S_PADDING:
                        e = read_content(r, in, data, &again);
                        break;
                case S_COLLECT:
                case S_PAX:
                case S_SKIP:
                        if (in->n == 0 && r->left)
                                return TAR_MORE;
                        e = read_extended(r, in);
                        break;
                case S_EOF:
                        return TAR_EOF;
                default:
                        return -EPROTO;
                }
                if (e < 0 || !again)
                        return e;
        }
}

int tar_read_finish(struct tar_reader *r)
{
        if (r->state == S_EOF)
                return 0;
        /* Some writers leave the end marker out; then the archive ends between two entries. */
        if (r->state == S_HEADER && r->have == 0 && !r->path.set && !r->link.set)
                return 0;
        if (r->state == S_PADDING)
                return 0;
        if (r->state == S_DEAD)
                return -EPROTO;
        return broken(r, "the archive is cut off");
}

long tar_clean_path(const char *p, size_t n, char *out)
{
        size_t len = 0;

        if (n > TAR_NAME_MAX || memchr(p, '\0', n))
                return -EINVAL;
        if (n && p[0] == '/')
                return -EXDEV;
        for (size_t i = 0; i < n;) {
                const char *slash = memchr(p + i, '/', n - i);
                size_t end = slash ? (size_t) (slash - p) : n, part = end - i;

                if (part == 2 && p[i] == '.' && p[i + 1] == '.')
                        return -EXDEV;
                if (part && !(part == 1 && p[i] == '.')) {
                        if (len)
                                out[len++] = '/';
                        memcpy(out + len, p + i, part);
                        len += part;
                }
                i = end + 1;
        }
        out[len] = '\0';
        return (long) len;
}

static void octal(unsigned char *p, size_t n, uint64_t v)
{
        p[n - 1] = '\0';
        for (size_t i = n - 1; i-- > 0;) {
                p[i] = (unsigned char) ('0' + (v & 7));
                v >>= 3;
        }
}

/* Where a long name may be cut into prefix (≤ 155) and name (≤ 100); 0 when it cannot. */
static size_t split_name(const char *p, size_t n)
{
        if (n > 256)
                return 0;
        for (size_t i = n > 101 ? n - 101 : 1; i < n && i <= 155; i++)
                if (p[i] == '/' && i + 1 < n)
                        return i;
        return 0;
}

static int add_record(struct buf *out, const char *key, const char *value, size_t n)
{
        size_t body = 1 + strlen(key) + 1 + n + 1; /* " key=value\n" */
        size_t digits = 1, total;

        for (;;) {
                size_t probe = body + digits, d = 0;

                for (size_t v = probe; v; v /= 10)
                        d++;
                total = probe;
                if (d == digits)
                        break;
                digits = d;
        }
        int r = buf_addf(out, "%zu %s=", total, key);
        if (r >= 0)
                r = buf_add(out, value, n);
        return r < 0 ? r : buf_addc(out, '\n');
}

static int write_block(struct buf *out, const char *name, size_t name_len, size_t cut, const struct tar_entry *e,
                       char flag, uint64_t size, const char *link, size_t link_len)
{
        unsigned char b[TAR_BLOCK] = { 0 };
        unsigned sum = 0;

        if (cut) {
                memcpy(b + F_PREFIX, name, cut);
                memcpy(b + F_NAME, name + cut + 1, min_size(name_len - cut - 1, 100));
        } else {
                memcpy(b + F_NAME, name, min_size(name_len, 100));
        }
        octal(b + F_MODE, 8, e->mode & 07777);
        octal(b + F_UID, 8, 0);
        octal(b + F_GID, 8, 0);
        octal(b + F_SIZE, 12, size > 077777777777ull ? 0 : size);
        octal(b + F_MTIME, 12, e->mtime > 0 && e->mtime <= 077777777777ll ? (uint64_t) e->mtime : 0);
        b[F_TYPE] = (unsigned char) flag;
        memcpy(b + F_LINK, link, min_size(link_len, 100));
        memcpy(b + F_MAGIC, "ustar\00000", 8);
        memset(b + F_SUM, ' ', 8);
        for (size_t i = 0; i < TAR_BLOCK; i++)
                sum += b[i];
        octal(b + F_SUM, 7, sum);
        return buf_add(out, b, sizeof(b));
}

static int write_pax(struct buf *out, const struct tar_entry *e, bool path, bool link, bool size)
{
        struct buf body = BUF_MAX(3 * TAR_NAME_MAX);
        int r = 0;

        if (path)
                r = add_record(&body, "path", e->path, e->path_len);
        if (r >= 0 && link)
                r = add_record(&body, "linkpath", e->link, e->link_len);
        if (r >= 0 && size) {
                struct buf num = BUF_MAX(32);

                r = buf_addf(&num, "%llu", (unsigned long long) e->size);
                if (r >= 0)
                        r = add_record(&body, "size", num.p, num.len);
                buf_done(&num);
        }
        if (r >= 0)
                r = write_block(out, "./pax", 5, 0, &(struct tar_entry){ .mode = 0644 }, 'x', body.len, "", 0);
        if (r >= 0)
                r = buf_add(out, body.p, body.len);
        if (r >= 0)
                r = tar_write_zeros(out, tar_padding(body.len));
        buf_done(&body);
        return r;
}

int tar_write_header(struct buf *out, const struct tar_entry *e)
{
        static const char flags[] = { '0', '5', '2', '1' };
        size_t cut = 0, link_len = e->link ? e->link_len : 0;

        if (e->type >= TAR_OTHER || e->path_len == 0 || e->path_len > TAR_NAME_MAX || link_len > TAR_NAME_MAX ||
            e->size > SIZE_LIMIT || memchr(e->path, '\0', e->path_len) || (e->type != TAR_FILE && e->size))
                return -EINVAL;
        if (e->path_len > 100)
                cut = split_name(e->path, e->path_len);
        bool long_path = e->path_len > 100 && !cut, long_link = link_len > 100, big = e->size > 077777777777ull;
        if (long_path || long_link || big) {
                int r = write_pax(out, e, long_path, long_link, big);

                if (r < 0)
                        return r;
        }
        return write_block(out, e->path, e->path_len, cut, e, flags[e->type], e->size, link_len ? e->link : "",
                           link_len);
}

int tar_write_zeros(struct buf *out, size_t n)
{
        static const char zeros[TAR_BLOCK];

        while (n) {
                size_t k = min_size(n, sizeof(zeros));
                int r = buf_add(out, zeros, k);

                if (r < 0)
                        return r;
                n -= k;
        }
        return 0;
}

int tar_write_end(struct buf *out)
{
        return tar_write_zeros(out, (size_t) 2 * TAR_BLOCK);
}
