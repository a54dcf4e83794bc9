/*
 * tar: a strict, pure codec for tar archives (ustar, GNU long names, pax); no I/O and no file system.
 *
 * Reading is push style: the caller owns the input bytes and calls tar_read until it asks for more. What an
 * entry points to belongs to the reader and is valid until the next tar_read. Names are raw bytes exactly as the
 * archive has them ("../x", "/etc", "a//b" included): judging them is the caller's business (see tar_clean_path).
 * Writing appends header blocks to a struct buf; the caller sends the content and the padding itself.
 * Nothing here suspends, nothing is global.
 */
#pragma once

#include "base/buf.h"
#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TAR_BLOCK 512
#define TAR_NAME_MAX 4096
#define TAR_EXTENDED_MAX (1u << 20) /* bytes in one pax or GNU long-name header */

enum tar_type { TAR_FILE, TAR_DIR, TAR_SYMLINK, TAR_HARDLINK, TAR_OTHER /* devices, FIFOs, sparse … */ };

struct tar_entry {
        enum tar_type type;
        char flag;        /* the type flag in the archive, for messages */
        const char *path; /* NUL terminated */
        size_t path_len;
        const char *link; /* target of links, NUL terminated, else "" */
        size_t link_len;
        uint64_t size; /* content bytes that tar_read delivers: regular files only */
        unsigned mode; /* permission bits, at most 07777 */
        int64_t mtime;
        const char *bad; /* why this entry cannot be used (name too long, sparse …), or NULL; its content is skipped */
};

enum tar_event {
        TAR_MORE,   /* the input is used up */
        TAR_HEADER, /* reader->entry describes a new entry */
        TAR_DATA,   /* *data is a piece of its content, pointing into the input */
        TAR_END,    /* the entry is complete (comes for every entry) */
        TAR_EOF,    /* the end marker was read; everything after it is ignored */
};

struct tar_name { /* one pending name; internal */
        bool set, too_long;
        size_t len;
        char text[TAR_NAME_MAX + 1];
};

struct tar_reader {
        struct tar_entry entry;
        const char *why; /* after an error: what is wrong with the archive */

        /* internal */
        unsigned char block[TAR_BLOCK];
        size_t have;
        int state;
        uint64_t left; /* content or extended bytes still to come */
        size_t padding;
        unsigned zeros;
        bool seen_pax, discard, sparse, pax_size_set, pax_mtime_set;
        uint64_t pax_size;
        int64_t pax_mtime;
        struct tar_name path, link;
        struct tar_name *collect; /* GNU L and K */
        struct {                  /* the pax record being read */
                int state;
                uint64_t length, used;
                size_t key_len, num_len;
                char key[24], num[32];
                bool global;
        } pax;
};

/* The struct is about 9 KiB: allocate it, or place it in static or coroutine-independent storage. */
void tar_reader_init(struct tar_reader *r);
/*
 * Consumes from *in. Returns an enum tar_event, or -EPROTO (r->why says what) after which the reader is dead.
 * Call again after every event but TAR_MORE with the rest of *in, also when that is empty.
 */
int tar_read(struct tar_reader *r, struct str *in, struct str *data);
/* At the end of the input: 0, or -EPROTO when the archive stops in the middle of an entry. */
int tar_read_finish(struct tar_reader *r);

/*
 * Brings a member's name into the form guest_path_ok accepts: "./" and doubled or trailing slashes go. out has room for
 * n + 1 bytes. Returns the length (0: the top folder itself), -EXDEV for an absolute name or one with "..",
 * -EINVAL for a NUL or more than TAR_NAME_MAX bytes.
 */
long tar_clean_path(const char *p, size_t n, char *out);

/*
 * Appends the header of e: ustar, with a pax header before it for what does not fit (names over 100/155 bytes, sizes of
 * 8 GiB and more). Non-ASCII names are written as they are. Content (size bytes, then tar_padding(size)
 * zeros) is the caller's business. -EINVAL for an entry that tar cannot hold, -ENOBUFS, -ENOMEM.
 */
int tar_write_header(struct buf *out, const struct tar_entry *e);
static inline size_t tar_padding(uint64_t size)
{
        return (size_t) (-size & (TAR_BLOCK - 1));
}
/* Appends n zero bytes; tar_write_end appends the two zero blocks that end an archive. */
int tar_write_zeros(struct buf *out, size_t n);
int tar_write_end(struct buf *out);
