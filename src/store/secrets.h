/*
 * secrets: sealed values by account and name, and the copies of them that boxes hold. Nothing here can open one. Times
 * are the caller's. Blobs given to a callback are valid during it; it must not use the database.
 */
#pragma once

#include "base/buf.h"
#include "store/db.h"

#define SECRET_NAME_MAX 64

struct secret_row {
        char name[SECRET_NAME_MAX + 1];
        int64_t created_at, changed_at, used_at; /* used_at 0: never */
};

/* Adds or replaces; created_at of an old one stays. */
int secrets_put(struct db *db, const char *account, const char *name, const void *sealed, size_t n, int64_t now,
                struct err *e);
int secrets_delete(struct db *db, const char *account, const char *name); /* -ENOENT */
int secrets_get(struct db *db, const char *account, const char *name, struct secret_row *ret,
                struct buf *sealed); /* -ENOENT;
                    sealed may be NULL */
/* By name. fn's non-zero stops and is returned. */
int secrets_each(struct db *db, const char *account, int (*fn)(const struct secret_row *s, void *arg), void *arg);
int64_t secrets_count(struct db *db, const char *account);
int secrets_used(struct db *db, const char *account, const char *name, int64_t now);
/* Whether anything sealed is kept for anyone. 1, 0, -errno. */
int secrets_any(struct db *db);

int box_secrets_add(struct db *db, const char *box, const char *name, const void *sealed, size_t n, int64_t now,
                    struct err *e);
/* The box has what was added of that name. */
int box_secrets_given(struct db *db, const char *box, const char *name);
/* Every copy, the oldest first; a name comes once for each value it had. */
int box_secrets_each(struct db *db, const char *box,
                     int (*fn)(const char *name, bool given, const void *sealed, size_t n, void *arg), void *arg);
int box_secrets_drop(struct db *db, const char *box);
/* The boxes that hold copies and do not run by their rows. */
int box_secrets_ended(struct db *db, int (*fn)(const char *box, void *arg), void *arg);
