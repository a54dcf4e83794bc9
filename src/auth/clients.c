#include "auth/client_metadata.h"
#include "auth/handlers.h"
#include "auth/redirect.h"

#include "base/mem.h"

#include <errno.h>
#include <stdlib.h>

bool client_allows(const struct client *c, const char *redirect_uri)
{
        _cleanup_json_ struct json *uris = NULL;

        if (json_parse(c->redirect_uris, strlen(c->redirect_uris), &uris, NULL) < 0)
                return false;
        for (size_t i = 0; i < json_len(uris); i++)
                if (redirect_matches(json_strn(json_at(uris, i)), str_of(redirect_uri)))
                        return true;
        return false;
}

int coroutine_fn client_find(struct auth *a, struct call *call, const char *id, struct client *ret, struct err *e)
{
        int r = strlen(id) < sizeof ret->id ? clients_get(a->db, id, ret) : -ENOENT;

        if (r == -ENOENT && a->allow_metadata && metadata_id_ok(id))
                return client_fetch(a, call, id, ret, e);
        if (r == 0 && ret->document && ret->fresh_until < a->now() && a->allow_metadata) {
                client_done(ret);
                return client_fetch(a, call, id, ret, e);
        }
        if (r == -ENOENT)
                return err_set(e, r, "the client is not known here: it must register again");
        return r < 0 ? err_set(e, -EAGAIN, "the client cannot be looked up now") : 0;
}
