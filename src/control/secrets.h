/*
 * secrets: values that an account keeps here and gives to boxes as environment variables (docs/secrets.md).
 *
 * At rest they are sealed (base/seal.h) with the key in secrets.key of the state folder; a value is in memory only
 * while it is set, given to a box, or looked for in what a box prints. A box's daemon keeps what it was given in its
 * memory; the store keeps sealed copies for as long as the box lives, so that everything it prints is masked, whatever
 * became of the secret meanwhile.
 */
#pragma once

#include "base/mask.h"
#include "base/seal.h"
#include "control/control.h"
#include "store/secrets.h"

#define SECRETS_MAX 100                       /* of one account */
#define SECRET_VALUE_MAX ((size_t) 16 << 10)  /* of one value */
#define BOX_SECRETS_BYTES ((size_t) 32 << 10) /* of all values that one box holds or was given */
#define BOX_SECRETS_COPIES 200

/* secret_key.c: reads the key; wipe it after use. make: makes one when there is none and nothing is sealed yet.
 * -ENOKEY: it is missing, or no file of 32 bytes that only its owner can read; with what to do in e. */
int secret_key(struct control *c, bool make, unsigned char key[SEAL_KEY_LEN], struct err *e);

/* ---- of an account (secrets.c) ---- */

/* -EINVAL with the reason in e: what a name must look like, and the names a box needs for itself. */
int secret_name_check(const char *name, struct err *e);
/* Adds or replaces. -EINVAL (name or value), -E2BIG (value), -EDQUOT (too many), -ENOKEY. ret may be NULL. */
int secrets_set(struct control *c, const char *account, const char *name, struct str value, struct secret_row *ret,
                struct err *e);
/* {name, createdAt, changedAt, lastUsedAt} */
void secret_write(struct jw *w, const struct secret_row *s);
int secrets_remove(struct control *c, const char *account, const char *name, struct err *e); /* -ENOENT */

/* Opened values; wiped by secret_values_done. */
struct secret_values {
        struct buf text;
        struct secret_value {
                char name[SECRET_NAME_MAX + 1];
                size_t at, len; /* in text */
                bool given;     /* of a box's copy: it has it for sure */
        } * v;
        size_t n;
};
void secret_values_done(struct secret_values *s);
#define _cleanup_secrets_ _cleanup_(secret_values_done)
struct str secret_value(const struct secret_values *s, size_t i);
/* Opens one more. context: where it was sealed for. -ENOKEY with the reason when it cannot be opened. */
int secret_values_add(struct secret_values *s, const unsigned char key[SEAL_KEY_LEN], struct str context,
                      const char *name, const void *sealed, size_t n, struct err *e);
/* "<kind> NUL <owner> NUL <name>": what a sealed value is bound to. */
void secret_context(struct buf *b, const char *kind, const char *owner, const char *name);
/* The account's secrets of these names (an array of strings; twice the same counts once): -EINVAL, -ENOENT by name,
 * -ENOKEY, -E2BIG when they are more than a box takes. */
int secrets_open(struct control *c, const char *account, const struct json *names, struct secret_values *ret,
                 struct err *e);

/* ---- of a box (box_secrets.c) ---- */

/* Gives the box the account's secrets of these names, for every later command: all of them or none. */
int coroutine_fn secrets_give(struct control *c, const char *account, const char *box, const struct json *names,
                              struct err *e);
/* What masks everything the box says: a reference in *ret, NULL when it holds no secret. -ENOKEY: it holds some, and
 * they cannot be opened; nothing it prints may be shown then. */
int box_mask(struct control *c, const char *box, struct mask **ret, struct err *e);
/* The names that the box holds, as strings into an array. */
void box_secret_names(struct control *c, const char *box, struct jw *w);
bool box_has_secrets(struct control *c, const char *box);
/* A mask of opened values, for what is written before a box has them; NULL when there are none. */
int secret_values_mask(const struct secret_values *s, struct mask **ret, struct err *e);
/* The box ended: its copies go. */
void box_secrets_end(struct control *c, const char *box);
/* Masks that nobody used for a while are wiped; copies of boxes that ended go. */
void box_secrets_janitor(struct control *c);
