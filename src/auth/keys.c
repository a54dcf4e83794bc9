#include "auth/keys.h"

#include "base/hash.h"
#include "base/ids.h"
#include "base/mem.h"
#include "base/utf8.h"

#include <errno.h>
#include <stdio.h>

int key_add(struct db *db, const char *account, const char *name, char **ret_key, char **ret_id, struct err *e)
{
        _cleanup_free_ char *secret = random_token(32);
        _cleanup_free_ char *key = xasprintf(KEY_PREFIX "%s", secret);
        unsigned char hash[HASH_LEN];
        char id[13], hint[16];

        if (!name[0] || strlen(name) > 60 || !utf8_valid(str_of(name)))
                return err_set(e, -EINVAL, "a key's name is 1 to 60 bytes of UTF-8");
        sha256_of(key, strlen(key), hash);
        random_id(id, sizeof id - 1);
        (void) snprintf(hint, sizeof hint, "%.9s…", key);
        int r = keys_insert(db, id, account, name, hash, hint, e);
        if (r < 0)
                return r;
        *ret_key = steal_ptr(key);
        *ret_id = xstrdup(id);
        return 0;
}
