/*
 * spool: what is kept of one output stream of a job. The first and the last 16 KiB stay in memory; once spool_to_file
 * was called everything goes to a file on the box's disk, up to SPOOL_MAX. A full disk ends the file, not the job. A
 * spool owns its buffers and its file. Nothing here suspends.
 */
#pragma once

#include "boxd/job.h"

#include <stddef.h>
#include <stdint.h>

struct spool {
        uint64_t total;
        char *head;
        size_t head_len, head_cap;
        char *ring; /* the last KEEP_EDGE bytes after the head */
        size_t ring_len, ring_pos;

        int fd; /* -1: memory only */
        bool full;
        int error;
        uint64_t file_len;   /* bytes in the file */
        uint64_t file_total; /* bytes of the stream that the file stands for, its gap included */
        struct gap gap;      /* what was lost before the file began */
};

void spool_init(struct spool *s);
void spool_done(struct spool *s);
void spool_add(struct spool *s, const char *p, size_t n);
/* From now on everything is kept in dirfd/name; what memory has goes first. A failure is remembered in s->error. */
void spool_to_file(struct spool *s, int dirfd, const char *name);

/* What can be read now, and reading it. */
void spool_kept(const struct spool *s, struct kept *k);
long spool_read(void *spool, uint64_t off, void *p, size_t n);

/*
 * At the job's end: *k says what is kept and the return value where: in the file, in inline_out (at most inline_cap
 * bytes), or in a memory file whose descriptor goes to *ret_fd.
 */
enum store spool_finish(struct spool *s, int dirfd, const char *name, struct kept *k, unsigned char *inline_out,
                        size_t inline_cap, int *ret_fd);
