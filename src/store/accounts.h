/* accounts: accounts, API keys, conversations (agents) and MCP sessions. */
#pragma once

#include "store/db.h"

/* The account of a single-person installation, made when missing; id into ret (allocated). */
int accounts_first(struct db *db, char **ret, struct err *e);
/* A further account; its people, keys and boxes are nobody else's. -EINVAL for a name that is empty or over 60 bytes.
 */
int accounts_add(struct db *db, const char *name, char **ret, struct err *e);

struct key_row {
        const char *id, *account, *name, *hint;
        int64_t created_at, last_used_at, revoked_at;
};
int keys_insert(struct db *db, const char *id, const char *account, const char *name, const unsigned char hash[32],
                const char *hint, struct err *e);
/* The account of a live key by its hash, allocated with the key's id; -ENOENT. Marks the use at most once a minute. */
int keys_find(struct db *db, const unsigned char hash[32], char **ret_account, char **ret_key);
int keys_each(struct db *db, int (*fn)(const struct key_row *k, void *arg), void *arg);
/* By id or name: number revoked, or -errno. */
int keys_revoke(struct db *db, const char *id_or_name, struct err *e);
int keys_revoke_one(struct db *db, const char *account, const char *id); /* -ENOENT */

struct agent_row {
        int64_t called_at, heartbeat_at, left_at; /* 0 = never */
        char client[65];
};
int agents_called(struct db *db, const char *account, const char *agent, const char *client);
int agents_heartbeat(struct db *db, const char *account, const char *agent, const char *client);
int agents_left(struct db *db, const char *account, const char *agent);
int agents_get(struct db *db, const char *account, const char *agent, struct agent_row *ret); /* -ENOENT */
int agents_trim(struct db *db, int64_t before_ms); /* conversations unheard of since */

int sessions_insert(struct db *db, const char *id, const char *account, const char *version, const char *client);
/* -ENOENT; client may be NULL. */
int sessions_find(struct db *db, const char *id, const char *account, char version[static 16], char *client,
                  size_t client_size);
int sessions_delete(struct db *db, const char *id, const char *account); /* -ENOENT */
int sessions_trim(struct db *db, int64_t before_ms, int64_t keep);
