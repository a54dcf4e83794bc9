/*
 * people: the people of an account, their invitations, passkeys and sign-ins (browser sessions), and the forms that
 * were already sent. Secrets come in as SHA-256 hashes; the password as the text that libsodium made of it. Times are
 * the caller's.
 */
#pragma once

#include "store/db.h"

struct person {
        char id[16], account[16];
        char login[129], name[129];
        char password[160];
        int64_t created_at, seen_at;
};

int64_t people_count(struct db *db);                                       /* of all accounts; -errno */
int people_insert(struct db *db, const struct person *p, struct err *e);   /* -EEXIST: the login is taken */
int people_by_login(struct db *db, const char *login, struct person *ret); /* -ENOENT */
int people_by_id(struct db *db, const char *id, struct person *ret);       /* -ENOENT */
int people_set_password(struct db *db, const char *id, const char *password);
int people_seen(struct db *db, const char *id, int64_t now);
/* account NULL: of every account. */
int people_each(struct db *db, const char *account, int (*fn)(const struct person *p, void *arg), void *arg);
/* With everything that hangs on the person: sign-ins, passkeys, grants and their tokens. account NULL: any. -ENOENT. */
int people_delete(struct db *db, const char *account, const char *id, struct err *e);

struct invite {
        char id[16], account[16];
        char note[129];
        bool first;
        int64_t created_at, expires_at;
};
int invites_insert(struct db *db, const unsigned char hash[32], const struct invite *i, const char *invited_by,
                   struct err *e);
int invites_find(struct db *db, const unsigned char hash[32], int64_t now, struct invite *ret); /* -ENOENT */
int invites_delete(struct db *db, const char *account, const char *id);                         /* -ENOENT */
int invites_delete_first(struct db *db);
int invites_each(struct db *db, const char *account, int64_t now, int (*fn)(const struct invite *i, void *arg),
                 void *arg);

struct passkey {
        char id[16], person[16];
        unsigned char credential[1024], public_key[1024];
        size_t credential_len, public_key_len;
        int64_t sign_count, created_at, used_at;
        char rp_id[256], name[65];
};
int passkeys_insert(struct db *db, const struct passkey *k, struct err *e);              /* -EEXIST */
int passkeys_find(struct db *db, const void *credential, size_t n, struct passkey *ret); /* -ENOENT */
int passkeys_used(struct db *db, const char *id, int64_t sign_count, int64_t now);
int passkeys_each(struct db *db, const char *person, int (*fn)(const struct passkey *k, void *arg), void *arg);
int passkeys_delete(struct db *db, const char *person, const char *id); /* -ENOENT */

struct login {
        char id[16], person[16];
        char address[64], agent[161];
        int64_t created_at, used_at, expires_at;
};
int logins_insert(struct db *db, const unsigned char hash[32], const struct login *l, struct err *e);
int logins_find(struct db *db, const unsigned char hash[32], int64_t now, struct login *ret); /* -ENOENT */
int logins_touch(struct db *db, const char *id, int64_t used_at, int64_t expires_at);
int logins_each(struct db *db, const char *person, int64_t now, int (*fn)(const struct login *l, void *arg), void *arg);
int logins_delete(struct db *db, const char *person, const char *id); /* -ENOENT */
int logins_delete_others(struct db *db, const char *person, const char *keep_id);

/* Marks a form's number as used: -EEXIST when it was. */
int forms_use(struct db *db, const unsigned char nonce[16], int64_t expires_at);

/* What is over: invitations, sign-ins, used forms. */
int people_trim(struct db *db, int64_t now);
