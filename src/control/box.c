#include "control/control.h"
#include "control/guest_client.h"
#include "control/pool.h"
#include "control/secrets.h"
#include "control/wires.h"

#include "base/clock.h"
#include "base/ids.h"
#include "base/log.h"
#include "base/mem.h"
#include "loop/loop.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define KIB ((int64_t) 1024)
#define MIB (1024 * KIB)
#define GIB (1024 * MIB)

static const struct {
        const char *name;
        struct driver_size size;
} sizes[] = {
        { "small", { .cpus = 1, .memory_bytes = 2 * GIB, .pids = 512, .disk_bytes = 5 * GIB } },
        { "medium", { .cpus = 2, .memory_bytes = 4 * GIB, .pids = 2048, .disk_bytes = 10 * GIB } },
        { "large", { .cpus = 4, .memory_bytes = 8 * GIB, .pids = 4096, .disk_bytes = 20 * GIB } },
};

int size_lookup(const char *name, struct driver_size *ret)
{
        for (size_t i = 0; i < ARRAY_LEN(sizes); i++)
                if (cstr_eq(sizes[i].name, name)) {
                        *ret = sizes[i].size;
                        return 0;
                }
        return -ENOENT;
}

/* ---- references ---- */

static struct box *box_new(struct control *c, const char *id, const char *account, int64_t oom_kills)
{
        struct box *b = xcalloc(1, sizeof *b);

        (void) snprintf(b->id, sizeof b->id, "%s", id);
        (void) snprintf(b->account, sizeof b->account, "%s", account);
        b->refs = 1;
        b->oom_kills = oom_kills;
        waitq_init(&b->changed);
        (void) map_put(c->boxes, str_of(b->id), b);
        return b;
}

void box_release(struct box *b)
{
        if (!b || --b->refs > 0)
                return;
        free(b->running_note);
        mask_unref(b->mask);
        free(b);
}

void box_releasep(struct box **b)
{
        box_release(*b);
}

static void box_forget(struct control *c, const char *id)
{
        struct box *b;

        box_secrets_end(c, id);
        b = map_del(c->boxes, str_of(id));
        if (!b)
                return;
        b->ending = true;
        waitq_wake_all(&b->changed);
        wires_forget(c, id);
        box_release(b);
        waitq_wake_all(&c->capacity);
}

/* Why a box of the account that is no longer running cannot be used, in words that say what to do. */
static int explain_not_running(struct control *c, const struct identity *who, const char *id, struct err *e)
{
        struct box_row row = { 0 };
        int r = boxes_get(c->db, who->account, id, &row, e);

        if (r < 0)
                return r;
        const struct box *b = map_get(c->boxes, str_of(id));
        if (b && b->ending)
                r = err_set(e, -ESTALE, "the box %s is being stopped", id);
        else if (cstr_eq(row.state, "starting"))
                r = err_set(e, -ESTALE, "the box %s is still starting: try again in a moment", id);
        else if (cstr_eq(row.state, "running"))
                r = err_set(e, -ESTALE,
                            "the box %s is being checked after a restart of the server: try again in a moment", id);
        else
                r = err_set(e, -ESTALE, "the box %s does not run (%s%s%s): start another with sandbox_start", id,
                            row.state, row.why ? ": " : "", row.why ? row.why : "");
        box_row_done(&row);
        return r;
}

int box_acquire(struct control *c, const struct identity *who, const char *id, struct box **ret, struct err *e)
{
        struct box *b = map_get(c->boxes, str_of(id));

        if (!b || !cstr_eq(b->account, who->account) || b->ending)
                return explain_not_running(c, who, id, e);
        b->refs++;
        (void) boxes_touch(c->db, b->id, who->agent[0] ? who->agent : NULL, who->client[0] ? who->client : NULL);
        *ret = b;
        return 0;
}

size_t control_running(const struct control *c)
{
        return map_len(c->boxes) + c->starting;
}

int64_t control_boxes_max(const struct control *c)
{
        if (c->cfg.boxes_max > 0)
                return c->cfg.boxes_max;
        /* Idle boxes cost well under 2 MiB; what bounds their number is what they are used for. An eighth of a GiB each
         * is what a light job takes, and the cgroup limits keep a heavy one from hurting the others. */
        int64_t pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
        int64_t fit = pages > 0 && page > 0 ? pages * page / (128 * MIB) : 8;
        return fit < 4 ? 4 : fit > 1000 ? 1000 : fit;
}

/* ---- starting ---- */

struct place {
        struct list node;
};

static size_t place_of(const struct control *c, const struct place *p)
{
        size_t n = 1;

        list_for_each (it, &c->queue) {
                if (it == &p->node)
                        return n;
                n++;
        }
        return n;
}

static bool has_room(const struct control *c)
{
        return (int64_t) control_running(c) < control_boxes_max(c);
}

static int no_room(const struct control *c, struct err *e)
{
        return err_set(
                e, -EAGAIN,
                "no room for another box: %zu run and %lld fit; sandbox_stop on one that is no longer needed makes"
                " room (sandbox_list shows them), or pass waitForCapacitySec to queue; nothing was started",
                control_running(c), (long long) control_boxes_max(c));
}

static int waited_in_vain(const struct control *c, int64_t waited_ms, size_t place, struct err *e)
{
        return err_set(e, -EAGAIN,
                       "no room for another box after %lld s in the queue, at place %zu: %zu run and %lld fit. The "
                       "place is given up, "
                       "since the caller can wait no longer, and nothing was started: call again to queue anew, or "
                       "make room with "
                       "sandbox_stop (sandbox_list shows the boxes)",
                       (long long) waited_ms / 1000, place, control_running(c), (long long) control_boxes_max(c));
}

/* Takes a slot (c->starting), in arrival order. */
static int coroutine_fn take_slot(struct control *c, const struct box_request *r, struct err *e)
{
        struct place me = { { NULL, NULL } };
        int64_t until = loop_now() + r->wait_capacity_ms;
        size_t told = 0;
        int ret = 0;

        if (list_empty(&c->queue) && has_room(c)) {
                c->starting++;
                pool_squeeze(c->pool);
                return 0;
        }
        if (r->wait_capacity_ms <= 0)
                return no_room(c, e);
        list_append(&c->queue, &me.node);
        while (!(c->queue.next == &me.node && has_room(c))) {
                size_t place = place_of(c, &me);
                int64_t left = until - loop_now();

                if (place != told && r->waiting)
                        r->waiting(told = place, r->arg);
                if (c->stopping)
                        ret = err_set(e, -ECANCELED, "the server is stopping; nothing was started");
                else if (left <= 0)
                        ret = waited_in_vain(c, r->wait_capacity_ms, place, e);
                if (ret < 0)
                        break;
                int w = waitq_wait(&c->capacity, left);
                if (w == -ECANCELED) {
                        ret = w;
                        break;
                }
        }
        list_remove(&me.node);
        if (ret == 0)
                c->starting++;
        /* Whoever is first now may have room too. */
        waitq_wake_all(&c->capacity);
        return ret;
}

static int coroutine_fn create_and_record(struct control *c, const struct identity *who, const struct box_request *r,
                                          const struct wires *wires, const struct driver_size *size, bool warm,
                                          const char *id, struct err *e)
{
        _cleanup_free_ char *services = wires_services_text(wires), *wiring = wires_wiring_text(wires);
        int64_t now = wall_ms();
        int ret;

        struct box_row row = {
                .id = (char *) (uintptr_t) id,
                .account = (char *) who->account,
                .name = (char *) (r->name ? r->name : id),
                .goal = (char *) r->goal,
                .image = (char *) r->image,
                .size = (char *) r->size,
                .state = (char *) "starting",
                .agent = who->agent[0] ? (char *) who->agent : NULL,
                .agent_client = who->client[0] ? (char *) who->client : NULL,
                .services = services,
                .wiring = wiring,
                .repos = (char *) "[]",
                .created_at = now,
                .used_at = now,
        };
        (void) map_put(c->claims, str_of(id), c);
        ret = boxes_insert(c->db, &row, e);
        if (ret == 0 && !warm)
                ret = c->driver->ops->create(c->driver, id, r->image, id, size, e);
        if (ret == 0 && wires->count) /* names resolve from the first moment */
                ret = wires_apply(c, id, e);
        if (ret == 0 && r->secrets)
                ret = secrets_give(c, who->account, id, r->secrets, e);
        if (ret == 0)
                ret = boxes_set_state(c->db, id, "running", NULL, e);
        if (ret < 0) {
                /* Nobody was told of it: it must leave no trace, also when the caller was cancelled meanwhile. */
                coro_shield();
                (void) c->driver->ops->destroy(c->driver, id, NULL);
                coro_unshield();
                wires_forget(c, id);
                (void) boxes_delete(c->db, id, NULL);
        }
        return ret;
}

/* The request as it is written down: a value that the box is about to hold is in no text about it. */
static int hide_secrets(struct control *c, const struct identity *who, struct box_request *r, char **goal, char **name,
                        struct err *e)
{
        _cleanup_secrets_ struct secret_values values = { 0 };
        _cleanup_mask_ struct mask *mask = NULL;
        _cleanup_free_ char *services = r->services ? json_text(r->services) : NULL;
        int ret = secrets_open(c, who->account, r->secrets, &values, e);

        if (ret == 0)
                ret = secret_values_mask(&values, &mask, e);
        if (ret == 0 && mask_hits(mask, str_of(services)))
                ret = err_set(e, -EINVAL, "`services` must not hold the value of a secret");
        if (ret == 0 && r->external_base_url && mask_hits(mask, str_of(r->external_base_url)))
                ret = err_set(e, -EINVAL, "`externalBaseUrl` must not hold the value of a secret");
        if (ret < 0)
                return err_wrap(e, "nothing was started");
        r->goal = *goal = mask_cstr(mask, r->goal);
        r->name = *name = mask_cstr(mask, r->name);
        return 0;
}

int coroutine_fn box_start(struct control *c, const struct identity *who, const struct box_request *asked, char id[33],
                           struct err *e)
{
        _cleanup_wires_ struct wires wires = { .count = 0 };
        _cleanup_free_ char *goal = NULL, *name = NULL;
        struct box_request known = *asked, *r = &known;
        struct image_choice image = { 0 };
        struct driver_size size;
        bool warm;
        int ret;

        if (size_lookup(r->size, &size) < 0)
                return err_set(e, -EINVAL, "`size` must be small, medium or large, got \"%.40s\"", r->size);
        ret = wires_begin(c, who, r->services, r->external_base_url, &wires, e);
        if (ret == 0 && r->secrets)
                ret = hide_secrets(c, who, r, &goal, &name, e);
        if (ret == 0)
                ret = image_choose(c, r->image, &image, e);
        known.image = image.name;
        if (ret == 0)
                ret = take_slot(c, r, e);
        if (ret < 0)
                return ret;
        warm = pool_take(c->pool, &image, r->size, id);
        if (!warm)
                random_id(id, BOX_ID_LEN);
        ret = create_and_record(c, who, &known, &wires, &size, warm, id, e);
        (void) map_del(c->claims, str_of(id));
        c->starting--;
        if (ret == 0) {
                c->starts++;
                (void) box_new(c, id, who->account, 0);
        } else {
                c->start_failures++;
                (void) err_wrap(e, "the box could not be started, and nothing is left of it");
                waitq_wake_all(&c->capacity);
        }
        return ret;
}

/* ---- ending ---- */

static int64_t last_sync_ms(struct control *c, const struct box_row *row)
{
        struct query q;
        int64_t at = row->created_at;

        query(c->db, &q,
              "SELECT max(ended_at) FROM steps WHERE box_id = ? AND tool = 'sandbox_sync' AND error IS NULL");
        query_str(&q, row->id);
        if (query_row(&q) && !col_null(&q, 0))
                at = col_int(&q, 0);
        (void) query_end(&q, NULL);
        return at;
}

/*
 * What in /work is neither pushed to a git remote nor as it was synced in: one line per top-level entry, "kind count
 * count path". Runs in the box with its own tools; git there reads a repository's configuration only of that box.
 */
static const char unsaved_script[] =
        "cd /work 2>/dev/null || exit 0\n"
        "shopt -s dotglob nullglob\n"
        "for p in *; do\n"
        "  case $p in .psbx-sync) continue;; esac\n"
        "  if [ -e \"$p/.git\" ] && command -v git >/dev/null; then\n"
        "    u=$(git -C \"$p\" --no-optional-locks status --porcelain 2>/dev/null | head -n 10000 | wc -l)\n"
        "    a=$(git -C \"$p\" log --oneline --branches --not --remotes 2>/dev/null | head -n 10000 | wc -l)\n"
        "    [ \"$u$a\" = 00 ] || printf 'git %s %s %s\\0' \"$u\" \"$a\" \"$p\"\n"
        "  else\n"
        "    n=$(find \"$p\" -name node_modules -prune -o \\( -type f -o -type l \\) -newermt \"$SINCE\" -print "
        "2>/dev/null | head -n 10000 | wc -l)\n"
        "    [ \"$n\" = 0 ] || printf 'files %s 0 %s\\0' \"$n\" \"$p\"\n"
        "  fi\n"
        "done\n";

static void parse_unsaved(struct str out, struct json *list)
{
        while (out.n && json_len(list) < 100) {
                struct str line = str_cut(&out, '\0');
                struct str kind = str_cut(&line, ' '), first = str_cut(&line, ' '), second = str_cut(&line, ' ');
                uint64_t a = 0, b = 0;

                if (parse_u64(first, 1000000, &a) < 0 || parse_u64(second, 1000000, &b) < 0 || line.n == 0)
                        continue;
                struct json *entry = json_obj();
                json_set(entry, "path", json_new_strn(line));
                if (str_eq(kind, STR("git"))) {
                        json_set_str(entry, "kind", "git");
                        json_set_int(entry, "uncommitted", (int64_t) a);
                        json_set_int(entry, "unpushedCommits", (int64_t) b);
                } else {
                        json_set_str(entry, "kind", "files");
                        json_set_int(entry, "changedFiles", (int64_t) a);
                }
                json_push(list, entry);
        }
}

static struct json *coroutine_fn find_unsaved(struct control *c, const struct box_row *row)
{
        _cleanup_guest_ struct guest_op g = { 0 };
        _cleanup_buf_ struct buf out = BUF_MAX(64 << 10);
        struct json *list = json_arr(), *head = json_obj(), *env = json_obj();
        char since[RFC3339_LEN], id[17], piece[4096];
        struct err e = { 0 };

        random_id(id, sizeof id - 1);
        /* Files of a sync carry the time at which they were written; the last of them may lie in the millisecond of its
         * end. */
        json_set_str(env, "SINCE", rfc3339(last_sync_ms(c, row) + 1, since));
        json_set_str(head, "op", "exec");
        json_set_str(head, "id", id);
        json_set_str(head, "cmd", unsaved_script);
        json_set_str(head, "cwd", ".");
        json_set(head, "env", env);
        json_set_int(head, "timeoutMs", 20000);
        if (guest_open(c, row->id, head, &g, &e) < 0)
                return list;
        g.idle_ms = 30000;
        for (;;) {
                enum guest_stream stream;
                _cleanup_json_ struct json *control = NULL;
                ssize_t n = guest_recv(&g, piece, sizeof piece, &stream, &control, &e);

                if (n < 0)
                        break;
                if (n > 0 && stream == GUEST_STDOUT && buf_add(&out, piece, (size_t) n) < 0)
                        break;
        }
        parse_unsaved(buf_str(&out), list);
        return list;
}

/*
 * From here the stop runs to its end, whatever becomes of the caller: half a stop would be a lost box. The row goes
 * first, so that a server that is killed in between finds a box without a row, which it removes, and not a lost one.
 */
static int coroutine_fn end_box(struct control *c, const struct box_row *row, struct err *e)
{
        int r = boxes_set_state(c->db, row->id, "deleted", "stopped by sandbox_stop", e);

        if (r < 0)
                return r;
        coro_shield();
        r = c->driver->ops->destroy(c->driver, row->id, e);
        coro_unshield();
        if (r < 0)
                (void) boxes_set_state(c->db, row->id, row->state, row->why, NULL);
        else
                box_forget(c, row->id);
        return r;
}

int coroutine_fn box_stop(struct control *c, const struct identity *who, const char *id, struct json **ret_unsaved,
                          struct err *e)
{
        _cleanup_(box_row_done) struct box_row row = { 0 };
        _cleanup_box_ struct box *b = NULL;
        int r = boxes_get(c->db, who->account, id, &row, e);

        if (r < 0)
                return r;
        if (map_get(c->claims, str_of(id)))
                return err_set(e, -EBUSY, "the box %s is still starting: try again in a moment", id);
        b = map_get(c->boxes, str_of(id));
        if (!b) { /* lost: only its files are left */
                *ret_unsaved = json_arr();
                return end_box(c, &row, e);
        }
        b->refs++;
        if (b->ending)
                return err_set(e, -EBUSY, "the box %s is being stopped by another call", id);
        b->ending = true;
        *ret_unsaved = find_unsaved(c, &row);
        r = coro_cancelled() ? -ECANCELED : end_box(c, &row, e);
        if (r < 0)
                b->ending = false;
        return r;
}

/* ---- after a restart ---- */

struct seen {
        struct control *c;
        struct map *states; /* id -> static string */
};

static int note_driver_box(const char *box, const char *state, void *arg)
{
        struct seen *s = arg;
        const char *known = cstr_eq(state, "running") ? "running" : cstr_eq(state, "frozen") ? "frozen" : "dead";

        (void) map_put(s->states, str_of(box), (void *) known);
        return 0;
}

static int settle_row(const struct box_row *row, void *arg)
{
        struct seen *s = arg;
        const char *state = map_del(s->states, str_of(row->id));
        bool alive = state && !cstr_eq(state, "dead");

        if (cstr_eq(row->state, "starting")) {
                /* Its start call never answered, so nobody knows it; unless that call is still running in this process.
                 */
                if (!map_get(s->c->claims, str_of(row->id))) {
                        if (state)
                                (void) map_put(s->states, str_of(row->id), (void *) "orphan");
                        (void) boxes_delete(s->c->db, row->id, NULL);
                }
                return 0;
        }
        if (cstr_eq(row->state, "lost"))
                return 0;
        if (alive) {
                if (!map_get(s->c->boxes, str_of(row->id)))
                        (void) box_new(s->c, row->id, row->account, row->oom_kills);
                return 0;
        }
        log_warning("box %s is gone: its processes ended while the server was away", row->id);
        (void) boxes_set_state(
                s->c->db, row->id, "lost",
                state ? "its processes ended; its files are kept" : "it no longer exists on this machine", NULL);
        box_forget(s->c, row->id);
        return 0;
}

struct orphan_list {
        struct control *c;
        char (*ids)[33];
        size_t n;
};

static int note_orphan(struct str key, void *value, void *arg)
{
        struct orphan_list *l = arg;

        (void) value;
        if (map_get(l->c->claims, key))
                return 0; /* being created right now: not ours to judge */
        l->ids = xrealloc(l->ids, (l->n + 1) * sizeof *l->ids);
        (void) snprintf(l->ids[l->n++], sizeof *l->ids, "%.*s", (int) key.n, key.p);
        return 0;
}

void coroutine_fn control_reconcile(struct control *c)
{
        struct seen s = { c, map_new() };
        struct orphan_list orphans = { .c = c };
        struct err e = { 0 };
        int r = c->driver->ops->list(c->driver, note_driver_box, &s, &e);

        if (r < 0) {
                log_error("the boxes on this machine cannot be listed: %s", err_text(&e));
                map_free(s.states);
                return;
        }
        (void) boxes_each(c->db, NULL, false, -1, settle_row, &s);
        pool_settle(c->pool, s.states);
        /* What is left has no row, or a row whose start was never answered. */
        (void) map_each(s.states, note_orphan, &orphans);
        for (size_t i = 0; i < orphans.n; i++) {
                struct box_row row = { 0 };

                /* A lost box keeps its files until someone stops it. */
                if (boxes_get(c->db, NULL, orphans.ids[i], &row, NULL) == 0) {
                        box_row_done(&row);
                        continue;
                }
                log_info("removing box %s, which no call was ever told of", orphans.ids[i]);
                (void) c->driver->ops->destroy(c->driver, orphans.ids[i], NULL);
        }
        free(orphans.ids);
        map_free(s.states);
        c->reconciled = true;
        pool_begin(c->pool);
        waitq_wake_all(&c->capacity);
        wires_apply_all(c);
}

void control_box_exited(const char *box, const char *how, void *arg)
{
        struct control *c = arg;
        struct box *b = map_get(c->boxes, str_of(box));

        if (pool_box_ended(c->pool, box) || !b || b->ending)
                return;
        log_warning("box %s ended by itself: %s", box, how);
        (void) boxes_set_state(c->db, box, "lost", how, NULL);
        box_forget(c, box);
}
