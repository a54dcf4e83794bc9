/* keys: API keys `psbx_…`: 256 random bits, shown once, stored as their SHA-256, revocable, with last use. Nothing here
 * suspends. */
#pragma once

#include "base/err.h"
#include "store/accounts.h"

#define KEY_PREFIX "psbx_"

/* A new key of the account (allocated text, shown once) under name; -EINVAL for a name that is empty or over 60 bytes.
 */
int key_add(struct db *db, const char *account, const char *name, char **ret_key, char **ret_id, struct err *e);
