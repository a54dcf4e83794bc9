/*
 * send: the tar stream of what the box lacks. Reading files (and gzip) happens on the thread pool, one piece ahead of
 * the socket. A file that shrinks while it is read is filled up with zeros, one that grows is cut at the size first
 * seen; both are named.
 */
#pragma once

#include "sync/rest.h"
#include "sync/tree.h"

struct send_spec {
        const char *id, *dest, *repo; /* repo may be "" */
        bool single;                  /* the one file becomes dest itself */
        bool gzip;
        const struct tree *tree;
        const uint32_t *need;
        size_t need_n;
        bool with_dirs; /* empty folders of the tree come along */
};

struct send_result {
        int64_t changed;
        uint64_t sent_bytes;       /* of the body */
        struct buf refused;        /* by the box: lines of text, NUL terminated */
        struct buf gone, changing; /* paths, NUL terminated */
        bool uploading;            /* the failure came before the whole body was out */
};
void send_result_done(struct send_result *r);

/* Tried a second time after a reset, 502 or 504. */
int coroutine_fn send_tree(const struct sync_env *env, const struct send_spec *spec, struct send_result *ret,
                           struct err *e);

/* The producer, blocking and without a loop: for the pool, and for tests. */
struct tar_source;
struct tar_source *tar_source_new(const struct send_spec *spec, struct send_result *res);
void tar_source_free(struct tar_source *s);
void tar_source_freep(struct tar_source **s);
/* Replaces out's content by the next piece; 0 when there is more, 1 after the last piece, -errno. */
int tar_source_fill(struct tar_source *s, struct buf *out);
