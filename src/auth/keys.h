/*
 * keys: API keys `psbx_…`: 256 random bits, shown once, stored as their SHA-256, revocable, with last use.
 * And the identity of a request, from its headers. Nothing here suspends.
 */
#pragma once

#include "control/control.h"

/* A new key of the account (allocated text, shown once) under name; -EINVAL for a name that is empty or over 60 characters. */
int key_add(struct db *db, const char *account, const char *name, char **ret_key, char **ret_id, struct err *e);

/* Who asks, from `Authorization: Bearer`, X-Psbx-Agent, X-Psbx-Client and the wait headers. -EACCES: no or an unknown key
 * (*ret_presented says whether one was given); -EINVAL: a header that is malformed. */
int identify(struct db *db, const struct call *call, struct identity *ret, bool *ret_presented, struct err *e);
