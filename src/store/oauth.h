/*
 * oauth: registered clients, authorization codes, grants and their tokens. Codes and tokens come in as SHA-256 hashes.
 * Times are the caller's. Deleting a grant deletes its tokens: what was given ends at once.
 */
#pragma once

#include "store/db.h"

struct client {
        char id[513]; /* ours, or the https address of a client's own document */
        char name[257];
        char *redirect_uris; /* JSON array of strings, allocated */
        bool document;
        int64_t created_at, used_at, granted_at, fresh_until;
};
void client_done(struct client *c);
#define _cleanup_client_ _cleanup_(client_done)

int clients_put(struct db *db, const struct client *c,
                struct err *e); /* inserts, or replaces what a document said before */
int clients_get(struct db *db, const char *id, struct client *ret); /* -ENOENT */
int clients_touch(struct db *db, const char *id, int64_t now, bool granted);
/* Removes clients that were never granted anything and are unused since unused_before, those unused since gone_before,
 * and the oldest never granted ones beyond keep. One with a grant is never removed. */
int clients_trim(struct db *db, int64_t unused_before, int64_t gone_before, int64_t keep);
int64_t clients_count(struct db *db);

struct code {
        char person[16];
        char *client, *redirect_uri, *challenge, *scope, *resource; /* allocated */
        int64_t expires_at, used_at;
        char grant[24]; /* what it was exchanged for, "" before */
};
void code_done(struct code *c);
#define _cleanup_code_ _cleanup_(code_done)

int codes_insert(struct db *db, const unsigned char hash[32], const struct code *c, struct err *e);
int codes_find(struct db *db, const unsigned char hash[32], struct code *ret); /* -ENOENT */
/* Marks it used; grant NULL when it was burnt by a wrong attempt. -ENOENT when it was used before. */
int codes_use(struct db *db, const unsigned char hash[32], const char *grant, int64_t now);

struct grant {
        char id[24], account[16], person[16];
        char client[513], client_name[257], person_name[129];
        char redirect_host[257], scope[65], resource[513];
        int64_t created_at, used_at;
};
int grants_insert(struct db *db, const struct grant *g, struct err *e);
int grants_get(struct db *db, const char *id, struct grant *ret); /* -ENOENT */
int grants_touch(struct db *db, const char *id, int64_t now);
int grants_each(struct db *db, const char *account, int (*fn)(const struct grant *g, void *arg), void *arg);
/* account NULL: any. -ENOENT. */
int grants_delete(struct db *db, const char *account, const char *id);

enum token_kind { TOKEN_ACCESS, TOKEN_REFRESH };
struct token {
        enum token_kind kind;
        char grant[24];
        int64_t created_at, expires_at, rotated_at;
};
int tokens_insert(struct db *db, const unsigned char hash[32], const struct token *t, struct err *e);
int tokens_find(struct db *db, const unsigned char hash[32], struct token *ret); /* -ENOENT */
int tokens_rotated(struct db *db, const unsigned char hash[32], int64_t now);
int tokens_delete(struct db *db, const unsigned char hash[32]);

/* Codes and tokens that are over, and grants without any token left. */
int oauth_trim(struct db *db, int64_t now);
