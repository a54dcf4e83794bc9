#include "control/guest_client.h"
#include "control/secrets.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "loop/loop.h"

#include <errno.h>
#include <stdlib.h>

#define KIND "box secret"
#define MASK_IDLE_MS 120000 /* an unused mask is wiped after that and the next round of the janitor */
#define ANSWER_MS 60000

/* ---- copies ---- */

struct reading {
        struct control *c;
        const char *box;
        unsigned char key[SEAL_KEY_LEN];
        struct secret_values *values;
        struct err *e;
};

static int open_copy(const char *name, bool given, const void *sealed, size_t n, void *arg)
{
        struct reading *x = arg;
        _cleanup_buf_ struct buf context = BUF_MAX(256);

        secret_context(&context, KIND, x->box, name);
        int r = secret_values_add(x->values, x->key, buf_str(&context), name, sealed, n, x->e);
        if (r == 0)
                x->values->v[x->values->n - 1].given = given;
        return r;
}

bool box_has_secrets(struct control *c, const char *box)
{
        struct query q;

        query(c->db, &q, "SELECT EXISTS (SELECT 1 FROM box_secrets WHERE box_id = ?)");
        query_str(&q, box);
        return query_number(&q) != 0; /* a store that cannot answer: as if there were some */
}

/* Everything the box was given, opened. */
static int read_copies(struct control *c, const char *box, struct secret_values *ret, struct err *e)
{
        struct reading x = { .c = c, .box = box, .values = ret, .e = e };

        if (!box_has_secrets(c, box))
                return 0;
        int r = secret_key(c, false, x.key, e);
        if (r == 0)
                r = box_secrets_each(c->db, box, open_copy, &x);
        mem_wipe(x.key, sizeof x.key);
        return r;
}

static bool holds(const struct secret_values *held, const char *name, struct str value)
{
        for (size_t i = 0; i < held->n; i++)
                if (cstr_eq(held->v[i].name, name) && str_eq(secret_value(held, i), value))
                        return true;
        return false;
}

static int add_copies(struct control *c, const char *box, const struct secret_values *held,
                      const struct secret_values *fresh, const unsigned char key[SEAL_KEY_LEN], struct err *e)
{
        int r = 0;

        for (size_t i = 0; i < fresh->n && r == 0; i++) {
                _cleanup_buf_ struct buf sealed = BUF_MAX(SECRET_VALUE_MAX + SEAL_EXTRA), context = BUF_MAX(256);
                struct str value = secret_value(fresh, i);

                if (holds(held, fresh->v[i].name, value))
                        continue;
                secret_context(&context, KIND, box, fresh->v[i].name);
                r = seal(key, buf_str(&context), value.p, value.n, &sealed);
                if (r < 0)
                        return err_sys(e, r, "the secret cannot be sealed");
                r = box_secrets_add(c->db, box, fresh->v[i].name, sealed.p, sealed.len, wall_ms(), e);
        }
        return r;
}

static void forget_mask(struct control *c, const char *box)
{
        struct box *b = map_get(c->boxes, str_of(box));

        if (!b)
                return;
        mask_unref(steal_ptr(b->mask));
        b->mask_known = false;
}

/* The copies lie in the store before the box has the values: what it prints is masked from its first byte on. */
static int keep_copies(struct control *c, const char *box, const struct secret_values *fresh, struct err *e)
{
        _cleanup_secrets_ struct secret_values held = { 0 };
        unsigned char key[SEAL_KEY_LEN];
        size_t bytes = 0;
        int r = read_copies(c, box, &held, e);

        for (size_t i = 0; i < fresh->n && r == 0; i++)
                bytes += holds(&held, fresh->v[i].name, secret_value(fresh, i)) ? 0 : fresh->v[i].len;
        if (r == 0 && (held.text.len + bytes > BOX_SECRETS_BYTES || held.n + fresh->n > BOX_SECRETS_COPIES))
                r = err_set(
                        e, -E2BIG,
                        "a box takes at most %zu KiB of secret values in its life, those that were replaced included: "
                        "this one has %zu bytes, and these are %zu more; start another box for them",
                        BOX_SECRETS_BYTES >> 10, held.text.len, bytes);
        if (r == 0)
                r = secret_key(c, false, key, e);
        if (r < 0)
                return r;
        r = db_begin(c->db, e);
        if (r == 0) {
                r = add_copies(c, box, &held, fresh, key, e);
                if (r == 0)
                        r = db_commit(c->db, e);
                if (r < 0)
                        db_rollback(c->db);
        }
        mem_wipe(key, sizeof key);
        forget_mask(c, box);
        return r;
}

/* ---- into the box ---- */

/* {"v":1,"op":"env","set":{…}}; the text is wiped by the caller. */
static int env_head(const struct secret_values *values, struct buf *text)
{
        struct jw w;

        if (!buf_room(text, text->max))
                return -ENOMEM;
        jw_init(&w, text);
        jw_obj(&w);
        jw_kint(&w, "v", GUEST_VERSION);
        jw_kstr(&w, "op", "env");
        jw_kobj(&w, "set");
        for (size_t i = 0; i < values->n; i++)
                jw_kstrn(&w, values->v[i].name, secret_value(values, i));
        return jw_end_all(&w);
}

static int coroutine_fn send_env(struct control *c, const char *box, const struct secret_values *values, struct err *e)
{
        _cleanup_secret_ struct buf text = BUF_MAX(GUEST_CONTROL_MAX);
        _cleanup_guest_ struct guest_op g = { 0 };
        int r = env_head(values, &text);

        if (r < 0)
                return err_set(e, -E2BIG, "the secrets are too long for one call");
        r = guest_open_text(c, box, buf_str(&text), &g, e);
        if (r < 0)
                return r;
        g.idle_ms = ANSWER_MS;
        return guest_finish(&g, e);
}

int coroutine_fn secrets_give(struct control *c, const char *account, const char *box, const struct json *names,
                              struct err *e)
{
        _cleanup_secrets_ struct secret_values fresh = { 0 };
        int r = secrets_open(c, account, names, &fresh, e);

        if (r < 0 || fresh.n == 0)
                return r;
        r = keep_copies(c, box, &fresh, e);
        if (r == 0)
                r = send_env(c, box, &fresh, e);
        for (size_t i = 0; i < fresh.n && r == 0; i++) {
                r = box_secrets_given(c->db, box, fresh.v[i].name);
                (void) secrets_used(c->db, account, fresh.v[i].name, wall_ms());
        }
        return r;
}

/* ---- out of what it says ---- */

int secret_values_mask(const struct secret_values *s, struct mask **ret, struct err *e)
{
        _cleanup_free_ struct mask_value *v = xcalloc(s->n + 1, sizeof *v);

        for (size_t i = 0; i < s->n; i++)
                v[i] = (struct mask_value){ s->v[i].name, secret_value(s, i) };
        *ret = NULL;
        int r = s->n ? mask_new(v, s->n, ret) : 0;
        return r < 0 ? err_sys(e, r, "what the box says cannot be masked") : 0;
}

static int mask_of_copies(struct control *c, const char *box, struct mask **ret, struct err *e)
{
        _cleanup_secrets_ struct secret_values held = { 0 };
        int r = read_copies(c, box, &held, e);

        if (r == 0)
                r = secret_values_mask(&held, ret, e);
        return r < 0 ? err_wrap(e, "the box %s holds secrets, so nothing it says can be shown", box) : 0;
}

int box_mask(struct control *c, const char *box, struct mask **ret, struct err *e)
{
        struct box *b = map_get(c->boxes, str_of(box));

        *ret = NULL;
        if (!b)
                return mask_of_copies(c, box, ret, e);
        if (!b->mask_known) {
                int r = mask_of_copies(c, box, &b->mask, e);

                if (r < 0)
                        return r;
                b->mask_known = true;
        }
        b->mask_used_at = loop_now();
        *ret = mask_ref(b->mask);
        return 0;
}

static int write_name(const char *name, bool given, const void *sealed, size_t n, void *arg)
{
        struct json *names = arg;
        bool known = !given;

        (void) sealed;
        (void) n;
        for (size_t i = 0; i < json_len(names); i++)
                known = known || cstr_eq(json_str(json_at(names, i)), name);
        if (!known)
                json_push(names, json_new_str(name));
        return 0;
}

void box_secret_names(struct control *c, const char *box, struct jw *w)
{
        _cleanup_json_ struct json *names = json_arr();

        (void) box_secrets_each(c->db, box, write_name, names);
        jw_json(w, names);
}

/* ---- at the end ---- */

void box_secrets_end(struct control *c, const char *box)
{
        forget_mask(c, box);
        if (box_secrets_drop(c->db, box) < 0)
                log_warning("the sealed copies of secrets of box %s could not be removed; the janitor tries again",
                            box);
}

static int wipe_idle(struct str id, void *value, void *arg)
{
        struct box *b = value;
        const int64_t *before = arg;

        (void) id;
        if (b->mask && b->mask_used_at < *before) {
                mask_unref(steal_ptr(b->mask));
                b->mask_known = false;
        }
        return 0;
}

struct ended {
        struct control *c;
        struct json *boxes;
};

static int note_ended(const char *box, void *arg)
{
        struct ended *x = arg;

        /* One whose stop is under way may yet live on. */
        if (!map_get(x->c->boxes, str_of(box)))
                json_push(x->boxes, json_new_str(box));
        return 0;
}

void box_secrets_janitor(struct control *c)
{
        _cleanup_json_ struct json *boxes = json_arr();
        struct ended x = { c, boxes };
        int64_t before = loop_now() - MASK_IDLE_MS;

        (void) map_each(c->boxes, wipe_idle, &before);
        (void) box_secrets_ended(c->db, note_ended, &x);
        for (size_t i = 0; i < json_len(boxes); i++)
                (void) box_secrets_drop(c->db, json_str(json_at(boxes, i)));
}
