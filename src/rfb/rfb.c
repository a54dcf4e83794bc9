#include "rfb/rfb.h"

#include "base/mem.h"
#include "base/str.h"

#include <errno.h>
#include <string.h>

#define NAME_MAX_BYTES 65536u
#define REASON_SHOWN 200u
#define REASON_MAX_BYTES 65536u
#define CLIPBOARD_MAX (1u << 20)
#define UPDATES_MAX 4096u /* messages until the region is there */
#define SIDE_MAX 32767u
#define BYTES_A_PIXEL 4u

struct session {
        const struct rfb_io *io;
        struct err *e;
        unsigned width, height;
        const struct rfb_region *region;
        struct picture *picture;
        uint64_t covered; /* pixels of the region that came */
        uint64_t budget;  /* pixels that may still come */
        unsigned char *row;
};

static unsigned get16(const unsigned char *p)
{
        return (unsigned) p[0] << 8 | p[1];
}

static uint32_t get32(const unsigned char *p)
{
        return (uint32_t) get16(p) << 16 | get16(p + 2);
}

static void put16(unsigned char *p, unsigned v)
{
        p[0] = (unsigned char) (v >> 8);
        p[1] = (unsigned char) v;
}

static int coroutine_fn take(struct session *s, void *p, size_t n)
{
        int r = s->io->recv_all(s->io->arg, p, n);

        return r < 0 ? err_set(s->e, r, "the screen's server broke off") : 0;
}

static int coroutine_fn give(struct session *s, const void *p, size_t n)
{
        int r = s->io->send_all(s->io->arg, p, n);

        return r < 0 ? err_set(s->e, r, "the screen's server takes nothing") : 0;
}

static int coroutine_fn skip(struct session *s, size_t n)
{
        char drop[512];

        while (n) {
                size_t part = min_size(n, sizeof drop);
                int r = take(s, drop, part);

                if (r < 0)
                        return r;
                n -= part;
        }
        return 0;
}

static int broken(struct session *s, const char *what)
{
        return err_set(s->e, -EPROTO, "the screen's server broke the RFB protocol: %s", what);
}

/* RFC 6143 §7.1.2: a length and a reason follow. Its text is the box's. */
static int coroutine_fn refused(struct session *s)
{
        unsigned char n[4] = { 0 };
        char text[REASON_SHOWN + 1] = "";
        int r = take(s, n, sizeof n);

        if (r < 0)
                return r;
        if (get32(n) > REASON_MAX_BYTES)
                return broken(s, "a reason that is too long");
        r = take(s, text, min_size(get32(n), REASON_SHOWN));
        if (r < 0)
                return r;
        for (char *p = text; *p; p++)
                if ((unsigned char) *p < 0x20 || (unsigned char) *p > 0x7e)
                        *p = '?';
        return err_set(s->e, -EACCES, "the screen's server refuses: %s", text);
}

/* §7.1.1: "RFB xxx.yyy\n". 3.7 and above let the client choose "None". */
static int coroutine_fn agree_on_version(struct session *s)
{
        char v[12] = "";
        uint64_t major = 0, minor = 0;
        int r = take(s, v, sizeof v);

        if (r < 0)
                return r;
        if (memcmp(v, "RFB ", 4) != 0 || v[7] != '.' || v[11] != '\n' || parse_u64(str_n(v + 4, 3), 999, &major) < 0 ||
            parse_u64(str_n(v + 8, 3), 999, &minor) < 0)
                return broken(s, "no version");
        if (major < 3 || (major == 3 && minor < 8))
                return broken(s, "a version before 3.8");
        return give(s, "RFB 003.008\n", 12);
}

/* §7.1.2, §7.1.3: only "None" (1); whoever can reach the socket may look. */
static int coroutine_fn authenticate(struct session *s)
{
        unsigned char n = 0, types[255] = { 0 }, chosen = 1, result[4] = { 0 };
        int r = take(s, &n, 1);

        if (r < 0)
                return r;
        if (n == 0)
                return refused(s);
        r = take(s, types, n);
        if (r < 0)
                return r;
        if (!memchr(types, chosen, n))
                return err_set(s->e, -EACCES, "the screen's server wants a password");
        r = give(s, &chosen, 1);
        if (r == 0)
                r = take(s, result, sizeof result);
        if (r < 0)
                return r;
        return get32(result) ? refused(s) : 0;
}

/* §7.3. Its pixel format does not matter: ours is asked for. */
static int coroutine_fn initialize(struct session *s)
{
        unsigned char shared = 1, init[24] = { 0 };
        int r = give(s, &shared, 1);

        if (r == 0)
                r = take(s, init, sizeof init);
        if (r < 0)
                return r;
        s->width = get16(init);
        s->height = get16(init + 2);
        if (s->width == 0 || s->height == 0 || s->width > SIDE_MAX || s->height > SIDE_MAX)
                return broken(s, "an impossible screen size");
        if (get32(init + 20) > NAME_MAX_BYTES)
                return broken(s, "a name that is too long");
        return skip(s, get32(init + 20));
}

static int check_region(struct session *s, struct rfb_region *g)
{
        if (g->width == 0)
                *g = (struct rfb_region){ 0, 0, s->width, s->height };
        if (g->x >= s->width || g->y >= s->height || g->width > s->width - g->x || g->height == 0 ||
            g->height > s->height - g->y)
                return err_set(s->e, -ERANGE,
                               "`region` (x %u, y %u, %u x %u) is not on the screen, which has %u x %u pixels", g->x,
                               g->y, g->width, g->height, s->width, s->height);
        if ((uint64_t) g->width * g->height > RFB_AREA_MAX)
                return err_set(s->e, -ERANGE,
                               "%u x %u pixels are more than one picture may have (%u): give a smaller `region`, or "
                               "make the screen smaller (xrandr)",
                               g->width, g->height, RFB_AREA_MAX);
        return 0;
}

/* §7.5.1 true colour, 32 bits, little endian, red in the first byte; §7.5.2 Raw only; §7.5.3 all of the region. */
static int coroutine_fn request(struct session *s)
{
        static const unsigned char format[] = { 0, 0, 0, 0, 32, 24, 0, 1, 0, 255, 0, 255, 0, 255, 0, 8, 16, 0, 0, 0 };
        static const unsigned char encodings[] = { 2, 0, 0, 1, 0, 0, 0, 0 };
        unsigned char all[sizeof format + sizeof encodings + 10] = { 0 };
        unsigned char *q = all + sizeof format + sizeof encodings;

        memcpy(all, format, sizeof format);
        memcpy(all + sizeof format, encodings, sizeof encodings);
        q[0] = 3;
        put16(q + 2, s->region->x);
        put16(q + 4, s->region->y);
        put16(q + 6, s->region->width);
        put16(q + 8, s->region->height);
        return give(s, all, sizeof all);
}

/* The part of a row of a rectangle that lies in the region. */
static void keep_row(struct session *s, unsigned x, unsigned y, unsigned width)
{
        const struct rfb_region *g = s->region;
        unsigned left = x > g->x ? x : g->x;
        unsigned right = x + width < g->x + g->width ? x + width : g->x + g->width;

        if (y < g->y || y >= g->y + g->height || left >= right)
                return;
        memcpy(s->picture->rgbx + ((size_t) (y - g->y) * g->width + (left - g->x)) * BYTES_A_PIXEL,
               s->row + (size_t) (left - x) * BYTES_A_PIXEL, (size_t) (right - left) * BYTES_A_PIXEL);
        s->covered += right - left;
}

static int coroutine_fn read_rectangle(struct session *s)
{
        unsigned char head[12] = { 0 };
        int r = take(s, head, sizeof head);

        if (r < 0)
                return r;
        unsigned x = get16(head), y = get16(head + 2), width = get16(head + 4), height = get16(head + 6);
        if (get32(head + 8) != 0)
                return broken(s, "an encoding that was not asked for");
        if (x > s->width || y > s->height || width > s->width - x || height > s->height - y)
                return broken(s, "a rectangle outside of the screen");
        if ((uint64_t) width * height > s->budget)
                return broken(s, "more pixels than were asked for");
        s->budget -= (uint64_t) width * height;
        for (unsigned i = 0; i < height && width; i++) {
                r = take(s, s->row, (size_t) width * BYTES_A_PIXEL);
                if (r < 0)
                        return r;
                keep_row(s, x, y + i, width);
        }
        return 0;
}

static int coroutine_fn read_update(struct session *s)
{
        unsigned char head[3] = { 0 };
        int r = take(s, head, sizeof head);

        for (unsigned i = 0, n = r < 0 ? 0 : get16(head + 1); r == 0 && i < n; i++)
                r = read_rectangle(s);
        return r;
}

/* §7.6: what else a server may say at any time is read past. */
static int coroutine_fn read_message(struct session *s)
{
        unsigned char type = 0, head[7] = { 0 };
        int r = take(s, &type, 1);

        if (r < 0)
                return r;
        switch (type) {
        case 0:
                return read_update(s);
        case 1: /* SetColourMapEntries */
                r = take(s, head, 5);
                return r < 0 ? r : skip(s, (size_t) get16(head + 3) * 6);
        case 2: /* Bell */
                return 0;
        case 3: /* ServerCutText */
                r = take(s, head, 7);
                if (r == 0 && get32(head + 3) > CLIPBOARD_MAX)
                        return broken(s, "a clipboard that is too long");
                return r < 0 ? r : skip(s, get32(head + 3));
        default:
                return broken(s, "an unknown message");
        }
}

static int coroutine_fn read_picture(struct session *s)
{
        uint64_t area = (uint64_t) s->region->width * s->region->height;
        int r = 0;

        /* A rendered pointer may be sent on top; a server that sends more than that does not mean well. */
        s->budget = area * 2 + (1u << 20);
        for (unsigned i = 0; r == 0 && s->covered < area; i++)
                r = i < UPDATES_MAX ? read_message(s) : broken(s, "the picture does not come to its end");
        return r;
}

int coroutine_fn rfb_grab(const struct rfb_io *io, const struct rfb_region *region, struct picture *ret,
                          unsigned screen[2], struct err *e)
{
        _cleanup_picture_ struct picture picture = { 0 };
        _cleanup_free_ unsigned char *row = NULL;
        struct rfb_region g = *region;
        struct session s = { .io = io, .e = e, .region = &g, .picture = &picture };
        int r = agree_on_version(&s);

        if (r == 0)
                r = authenticate(&s);
        if (r == 0)
                r = initialize(&s);
        if (r == 0)
                r = check_region(&s, &g);
        if (r == 0)
                r = request(&s);
        if (r < 0)
                return r;
        row = s.row = try_malloc((size_t) s.width * BYTES_A_PIXEL);
        if (!row || picture_init(&picture, g.width, g.height) < 0)
                return err_set(e, -ENOMEM, "no memory for a picture of %u x %u pixels", g.width, g.height);
        r = read_picture(&s);
        if (r < 0)
                return r;
        screen[0] = s.width;
        screen[1] = s.height;
        *ret = picture;
        picture.rgbx = NULL;
        return 0;
}
