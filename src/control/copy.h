/*
 * copy: a file or folder of a box becomes an object of ours that a link can lead to. What a box sends is bytes: its
 * type is told by the first of them, its size is bounded.
 */
#pragma once

#include "base/mask.h"
#include "control/guest_client.h"

#define COPY_LINK_MS ((int64_t) 3600 * 1000)

struct copy {
        char object[25], name[256];
        const char *type;
        int64_t bytes;
        bool archive;
        struct json *changed; /* array or NULL; the caller's, with json_unref */
        unsigned char magic[16];
        size_t magic_len;
};

/*
 * root and path as boxd's `get` takes them. The copy is kept a day; -ENOENT and the other codes of boxd. The bytes are
 * the file's own; its name is written down and goes into a link, so it is masked (NULL: there is nothing to mask).
 */
int coroutine_fn copy_out(struct control *c, const struct identity *who, const char *box, const char *root,
                          const char *path, struct mask *mask, struct copy *ret, struct err *e);
/* url and expiresAt: a link that works for an hour. */
void copy_write_link(struct jw *w, const struct control *c, const struct copy *copy);
/* All of it in memory, when it has at most max bytes: owned by the caller, else NULL. */
char *copy_bytes(const struct control *c, const struct copy *copy, size_t max);
