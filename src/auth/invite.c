#include "auth/invite.h"

#include "base/hash.h"
#include "base/ids.h"
#include "base/mem.h"
#include "base/utf8.h"

#include <errno.h>
#include <stdio.h>

int invite_make(struct db *db, const char *account, const char *note, bool first, const char *invited_by, int64_t now,
                char **ret_path, struct err *e)
{
        _cleanup_free_ char *token = random_token(32);
        struct invite i = { .first = first, .created_at = now, .expires_at = now + INVITE_MS };
        unsigned char hash[HASH_LEN];

        if (strlen(note) > 100 || !utf8_valid(str_of(note)))
                return err_set(e, -EINVAL, "the note is at most 100 bytes of UTF-8");
        if (first && people_count(db) > 0)
                return err_set(e, -EEXIST,
                               "there is a person already: invite others with parallelsandbox users invite");
        if (first)
                (void) invites_delete_first(db);
        random_id(i.id, 12);
        (void) snprintf(i.account, sizeof i.account, "%s", account);
        (void) snprintf(i.note, sizeof i.note, "%s", note);
        sha256_of(token, strlen(token), hash);
        int r = invites_insert(db, hash, &i, invited_by, e);
        if (r == 0)
                *ret_path = xasprintf("/join/%s", token);
        return r;
}

int invite_find(struct db *db, struct str token, int64_t now, struct invite *ret)
{
        unsigned char hash[HASH_LEN];

        if (token.n < 20 || token.n > 100)
                return -ENOENT;
        sha256_of(token.p, token.n, hash);
        int r = invites_find(db, hash, now, ret);
        if (r < 0)
                return r;
        return ret->first && people_count(db) > 0 ? -ENOENT : 0;
}
