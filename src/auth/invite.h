/* invite: one-time links by which people come in. The link's token is shown once and stored hashed. Nothing here
 * suspends. */
#pragma once

#include "store/people.h"

#define INVITE_MS (24 * 3600 * (int64_t) 1000)

/* A link's path, "/join/…" (allocated), good for a day. first: for the very first person; older ones of that kind end,
 * and -EEXIST when there is a person already. note: who it is meant for, "" or up to 100 bytes. invited_by: a person's
 * id or NULL. */
int invite_make(struct db *db, const char *account, const char *note, bool first, const char *invited_by, int64_t now,
                char **ret_path, struct err *e);
/* The invitation of a token, when it can still be used; -ENOENT. */
int invite_find(struct db *db, struct str token, int64_t now, struct invite *ret);
