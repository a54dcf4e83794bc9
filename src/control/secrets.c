#include "control/secrets.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/utf8.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define KIND "secret"

int secret_name_check(const char *name, struct err *e)
{
        /* A box's shells and loaders live by these. */
        static const char *const taken[] = { "PATH", "HOME", "USER",     "LOGNAME", "SHELL", "LANG",      "TERM",
                                             "PWD",  "IFS",  "OLDPWD",   "SHLVL",   "ENV",   "SHELLOPTS", "BASHOPTS",
                                             "PS4",  "_",    "BASH_ENV", "DISPLAY", "TMPDIR" };
        size_t n = strlen(name);
        bool ok = n > 0 && n <= SECRET_NAME_MAX && !(name[0] >= '0' && name[0] <= '9');

        for (size_t i = 0; i < n; i++)
                ok = ok && (c_is_alnum(name[i]) || name[i] == '_');
        if (!ok)
                return err_set(e, -EINVAL,
                               "a secret's name is that of an environment variable: 1 to %d letters, digits and _, no "
                               "digit first; got \"%.80s\"",
                               SECRET_NAME_MAX, name);
        for (size_t i = 0; i < ARRAY_LEN(taken); i++)
                ok = ok && !cstr_eq(taken[i], name);
        if (!ok || str_starts(str_of(name), STR("LD_")))
                return err_set(e, -EINVAL, "\"%s\" cannot be a secret's name: a box needs that variable for itself",
                               name);
        return 0;
}

static int value_check(struct str value, struct err *e)
{
        if (value.n > SECRET_VALUE_MAX)
                return err_set(e, -E2BIG, "a secret's value has at most %zu bytes, this one has %zu", SECRET_VALUE_MAX,
                               value.n);
        if (value.n < MASK_VALUE_MIN)
                return err_set(
                        e, -EINVAL,
                        "a secret's value has at least %zu bytes, this one has %zu: so short a text cannot be taken "
                        "out of what a box prints without harm",
                        MASK_VALUE_MIN, value.n);
        if (memchr(value.p, '\0', value.n) || !utf8_valid(value))
                return err_set(e, -EINVAL,
                               "a secret's value is UTF-8 without a NUL character: encode other bytes, for "
                               "example as base64");
        return 0;
}

void secret_context(struct buf *b, const char *kind, const char *owner, const char *name)
{
        buf_clear(b);
        (void) buf_add(b, kind, strlen(kind) + 1);
        (void) buf_add(b, owner, strlen(owner) + 1);
        (void) buf_adds(b, name);
}

int secrets_set(struct control *c, const char *account, const char *name, struct str value, struct secret_row *ret,
                struct err *e)
{
        _cleanup_buf_ struct buf sealed = BUF_MAX(SECRET_VALUE_MAX + SEAL_EXTRA), context = BUF_MAX(256);
        unsigned char key[SEAL_KEY_LEN];
        struct secret_row row;
        int r = secret_name_check(name, e);

        if (r == 0)
                r = value_check(value, e);
        if (r < 0)
                return r;
        if (secrets_get(c->db, account, name, &row, NULL) == -ENOENT && secrets_count(c->db, account) >= SECRETS_MAX)
                return err_set(e, -EDQUOT, "an account has at most %d secrets: delete one that is no longer needed",
                               SECRETS_MAX);
        r = secret_key(c, true, key, e);
        if (r == 0) {
                secret_context(&context, KIND, account, name);
                r = seal(key, buf_str(&context), value.p, value.n, &sealed);
                if (r < 0)
                        (void) err_sys(e, r, "the secret cannot be sealed");
        }
        mem_wipe(key, sizeof key);
        if (r == 0)
                r = secrets_put(c->db, account, name, sealed.p, sealed.len, wall_ms(), e);
        return r == 0 && ret ? secrets_get(c->db, account, name, ret, NULL) : r;
}

int secrets_remove(struct control *c, const char *account, const char *name, struct err *e)
{
        int r = secrets_delete(c->db, account, name);

        return r == -ENOENT ? err_set(e, r, "there is no secret \"%.80s\"", name)
               : r < 0      ? err_sys(e, r, "database")
                            : 0;
}

/* ---- opened ---- */

void secret_values_done(struct secret_values *s)
{
        buf_wipe(&s->text);
        free(steal_ptr(s->v));
        s->n = 0;
}

struct str secret_value(const struct secret_values *s, size_t i)
{
        return str_n(s->text.p + s->v[i].at, s->v[i].len);
}

int secret_values_add(struct secret_values *s, const unsigned char key[SEAL_KEY_LEN], struct str context,
                      const char *name, const void *sealed, size_t n, struct err *e)
{
        size_t at = s->text.len;

        if (!s->text.p) {
                s->text = BUF_MAX(BOX_SECRETS_BYTES + 1);
                (void) buf_room(&s->text, s->text.max); /* all at once: growing would leave copies */
        }
        int r = unseal(key, context, sealed, n, &s->text);
        if (r == -ENOBUFS)
                return err_set(e, -E2BIG, "a box takes at most %zu KiB of secret values, and these are more",
                               BOX_SECRETS_BYTES >> 10);
        if (r == -EKEYREJECTED)
                return err_set(
                        e, -ENOKEY,
                        "the secret \"%s\" was sealed with another secrets.key than the one in the server's state "
                        "folder: put that file back, or set the secret again",
                        name);
        if (r < 0)
                return err_set(e, -ENOKEY, "what is kept of the secret \"%s\" is damaged: set it again", name);
        s->v = xrealloc(s->v, (s->n + 1) * sizeof *s->v);
        s->v[s->n] = (struct secret_value){ .at = at, .len = s->text.len - at };
        (void) snprintf(s->v[s->n++].name, sizeof s->v->name, "%s", name);
        return 0;
}

static bool among(const struct secret_values *s, const char *name)
{
        for (size_t i = 0; i < s->n; i++)
                if (cstr_eq(s->v[i].name, name))
                        return true;
        return false;
}

static int open_named(struct control *c, const char *account, const char *name, const unsigned char key[SEAL_KEY_LEN],
                      struct secret_values *ret, struct err *e)
{
        _cleanup_buf_ struct buf sealed = BUF_MAX(SECRET_VALUE_MAX + SEAL_EXTRA), context = BUF_MAX(256);
        struct secret_row row;
        int r = secrets_get(c->db, account, name, &row, &sealed);

        if (r < 0)
                return r == -ENOENT
                               ? err_set(e, r,
                                         "there is no secret \"%.80s\": sandbox_secrets without arguments names those "
                                         "there are, and a person sets one on the settings page or with PUT "
                                         "/v1/secrets/NAME",
                                         name)
                               : err_sys(e, r, "database");
        secret_context(&context, KIND, account, name);
        return secret_values_add(ret, key, buf_str(&context), name, sealed.p, sealed.len, e);
}

int secrets_open(struct control *c, const char *account, const struct json *names, struct secret_values *ret,
                 struct err *e)
{
        unsigned char key[SEAL_KEY_LEN];
        struct secret_row row;
        int r = 0;

        /* Names first: who mistypes one need not hear of keys. */
        for (size_t i = 0; i < json_len(names) && r == 0; i++) {
                const char *name = json_str(json_at(names, i));

                r = secret_name_check(name ? name : "", e);
                if (r == 0 && secrets_get(c->db, account, name, &row, NULL) < 0)
                        r = open_named(c, account, name, NULL, ret, e);
        }
        if (r < 0 || json_len(names) == 0)
                return r;
        r = secret_key(c, false, key, e);
        for (size_t i = 0; i < json_len(names) && r == 0; i++) {
                const char *name = json_str(json_at(names, i));

                if (!among(ret, name))
                        r = open_named(c, account, name, key, ret, e);
        }
        mem_wipe(key, sizeof key);
        return r;
}
