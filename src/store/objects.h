/*
 * objects: bytes that outlive a call (outputs, downloads), in a folder, with a row each that says whose they are and
 * until when. An object is written to a temporary name and appears with objects_commit; a crash leaves nothing a reader
 * could see. Writing goes to the page cache with plain write(2), which does not wait for the disk.
 */
#pragma once

#include "store/db.h"

struct objects;
int objects_open(const char *folder, struct db *db, struct objects **ret,
                 struct err *e); /* removes leftovers of a crash */
void objects_free(struct objects *o);
/* Bytes of the disk that objects leave to others: a write that would go below fails with -ENOSPC. Default: none. */
void objects_keep_free(struct objects *o, int64_t bytes);

struct object_writer {
        struct objects *o;
        int fd;
        char id[25];
        int64_t bytes;
        int64_t looked; /* at how many bytes the disk was last looked at */
        int r;          /* first error */
};
int object_begin(struct objects *o, struct object_writer *w, struct err *e);
int object_write(struct object_writer *w, const void *p, size_t n); /* error is kept in w->r */
/* Makes the row and the file visible. The writer is finished either way. */
int object_commit(struct object_writer *w, const char *account, const char *box, const char *name, const char *type,
                  int64_t keep_ms, struct err *e);
void object_abort(struct object_writer *w); /* NULL-safe for a writer that never began (fd < 0) */

struct object_row {
        char name[256], type[128];
        int64_t bytes, expires_at;
};
/* An open descriptor, or -ENOENT. */
int object_read(struct objects *o, const char *id, struct object_row *ret, struct err *e);
int objects_expire(struct objects *o, int64_t now_ms); /* removes what is over; number removed */
int64_t objects_bytes(struct objects *o);
