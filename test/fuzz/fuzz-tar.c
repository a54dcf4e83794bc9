/*
 * The tar reader sees the same archive however it is cut into pieces, hands out nothing that lies outside of the input,
 * and what tar_clean_path accepts is a plain path. Entries that can be written come back as they were. The first byte
 * chooses the size of the pieces. Headers get a valid checksum first, or nothing behind that check would ever be
 * reached.
 */
#include "fuzz.h"
#include "guest/guest.h"
#include "guest/tar.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)          \
        do {                      \
                if (!(condition)) \
                        abort();  \
        } while (0)

static struct tar_reader reader, second;

static void check_entry(const struct tar_entry *e)
{
        char clean[TAR_NAME_MAX + 1];

        CHECK(e->path_len <= TAR_NAME_MAX && e->link_len <= TAR_NAME_MAX && e->mode <= 07777);
        CHECK(e->path[e->path_len] == '\0' && e->link[e->link_len] == '\0');
        CHECK(e->type == TAR_FILE || e->size == 0);
        CHECK(!e->bad || e->type == TAR_OTHER);
        long n = tar_clean_path(e->path, e->path_len, clean);
        CHECK(n <= (long) e->path_len);
        if (n > 0)
                CHECK(guest_path_ok(clean, (size_t) n));
}

static void rewrite(const struct tar_entry *e)
{
        struct tar_entry copy = *e;
        struct buf b = BUF_MAX(1 << 16);
        struct str data;

        if (copy.mtime < 0 || copy.mtime > 077777777777)
                copy.mtime = 0;
        if (copy.type != TAR_SYMLINK && copy.type != TAR_HARDLINK)
                copy.link_len = 0;
        if (tar_write_header(&b, &copy) == 0) {
                struct str in = buf_str(&b);
                bool dir_name = copy.path[copy.path_len - 1] == '/';

                CHECK(b.len % TAR_BLOCK == 0);
                tar_reader_init(&second);
                CHECK(tar_read(&second, &in, &data) == TAR_HEADER && in.n == 0);
                CHECK(str_eq(str_n(second.entry.path, second.entry.path_len), str_n(copy.path, copy.path_len)));
                CHECK(str_eq(str_n(second.entry.link, second.entry.link_len), str_n(copy.link, copy.link_len)));
                CHECK(second.entry.type == copy.type || (dir_name && copy.type == TAR_FILE));
                CHECK(second.entry.mode == copy.mode && second.entry.mtime == copy.mtime);
                CHECK(second.entry.type != TAR_FILE || second.entry.size == copy.size);
        }
        buf_done(&b);
}

/* A checksum over all that happens. */
static uint64_t run(const uint8_t *data, size_t size, size_t step, bool check)
{
        uint64_t sum = 0;
        int ev = TAR_MORE;

        tar_reader_init(&reader);
        for (size_t off = 0; off < size; off += step) {
                struct str in = str_n((const char *) data + off, size - off < step ? size - off : step), piece;

                while ((ev = tar_read(&reader, &in, &piece)) > TAR_MORE && ev != TAR_EOF) {
                        if (ev == TAR_DATA) {
                                CHECK(piece.n > 0 && piece.p >= (const char *) data &&
                                      piece.p + piece.n <= (const char *) data + size);
                                for (size_t i = 0; i < piece.n; i++)
                                        sum = sum * 31 + (uint8_t) piece.p[i];
                                continue;
                        }
                        sum = sum * 31 + (unsigned) ev;
                        if (ev == TAR_END)
                                continue;
                        for (size_t i = 0; i < reader.entry.path_len; i++)
                                sum = sum * 31 + (uint8_t) reader.entry.path[i];
                        sum = sum * 31 + reader.entry.size + reader.entry.mode + (unsigned) reader.entry.type;
                        if (check) {
                                check_entry(&reader.entry);
                                rewrite(&reader.entry);
                        }
                }
                if (ev == TAR_EOF)
                        break;
                if (ev < 0) {
                        CHECK(ev == -EPROTO && reader.why);
                        return sum * 31 + 7;
                }
        }
        return sum * 31 + (tar_read_finish(&reader) < 0 ? 7 : 0);
}

static void seal(uint8_t *p, size_t size)
{
        for (size_t off = 0; off + TAR_BLOCK <= size; off += TAR_BLOCK) {
                uint8_t *b = p + off;
                unsigned sum = 0;

                if (memcmp(b + 257, "ustar", 5) != 0)
                        continue;
                memset(b + 148, ' ', 8);
                for (size_t i = 0; i < TAR_BLOCK; i++)
                        sum += b[i];
                (void) snprintf((char *) b + 148, 8, "%06o", sum);
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        if (size < 2)
                return 0;
        size_t step = data[0] < 200 ? data[0] + 1u : (data[0] - 199u) * 511u;
        _cleanup_free_ uint8_t *copy = xmemdup(data + 1, size - 1);

        seal(copy, size - 1);
        uint64_t whole = run(copy, size - 1, size, true);
        CHECK(whole == run(copy, size - 1, step, false));
        return 0;
}
