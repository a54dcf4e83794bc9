#include "control/wires.h"

#include "control/external.h"
#include "control/scene.h"

#include "base/clock.h"
#include "base/mem.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const mode_names[] = { [WIRE_BOX] = "box", [WIRE_EXTERNAL] = "external", [WIRE_LINK] = "link" };

const char *wire_mode_name(enum wire_mode mode)
{
        return mode_names[mode];
}

static bool port_ok(int64_t port)
{
        return port >= 1 && port <= 65535;
}

static void read_service(const struct json *s, struct wires *w)
{
        const char *name = json_get_str(s, "name", ""), *from = json_get_str(s, "fromBox", NULL);
        int64_t port = json_get_int(s, "port", 0), target = json_get_int(s, "targetPort", 0);
        struct wire *one = &w->wire[w->count];

        if (w->count == WIRES_MAX || !name[0] || strlen(name) > WIRE_NAME_MAX || !port_ok(port))
                return;
        *one = (struct wire){ .port = (uint16_t) port,
                              .target_port = (uint16_t) (port_ok(target) ? target : port),
                              .target_given = port_ok(target),
                              .web = json_get_bool(s, "web", false) };
        (void) snprintf(one->name, sizeof one->name, "%s", name);
        if (from && strlen(from) < sizeof one->from_box) {
                one->mode = WIRE_LINK;
                (void) snprintf(one->from_box, sizeof one->from_box, "%s", from);
        } else if (cstr_eq(json_get_str(s, "mode", NULL), "external")) {
                one->mode = WIRE_EXTERNAL;
        }
        w->count++;
}

void wires_read(const struct box_row *row, struct wires *ret)
{
        _cleanup_json_ struct json *services = NULL, *wiring = NULL;

        *ret = (struct wires){ .count = 0 };
        if (row->services && json_parse(row->services, strlen(row->services), &services, NULL) == 0)
                for (size_t i = 0; i < json_len(services); i++)
                        read_service(json_at(services, i), ret);
        if (!row->wiring || json_parse(row->wiring, strlen(row->wiring), &wiring, NULL) < 0)
                return;
        ret->external_base_url = xstrdup(json_get_str(wiring, "externalBaseUrl", NULL));
        const struct json *paths = json_get(wiring, "scenePaths");
        for (size_t i = 0; i < json_len(paths) && ret->scene_path_count < SCENE_PATHS_MAX; i++)
                if (json_str(json_at(paths, i)))
                        ret->scene_paths[ret->scene_path_count++] = xstrdup(json_str(json_at(paths, i)));
}

static void drop_scene_paths(struct wires *w)
{
        while (w->scene_path_count)
                free(w->scene_paths[--w->scene_path_count]);
}

void wires_done(struct wires *w)
{
        drop_scene_paths(w);
        free(steal_ptr(w->external_base_url));
}

static struct wire *find(struct wires *w, const char *service)
{
        for (size_t i = 0; i < w->count; i++)
                if (cstr_eq(w->wire[i].name, service))
                        return &w->wire[i];
        return NULL;
}

const struct wire *wire_find(const struct wires *w, const char *service)
{
        for (size_t i = 0; i < w->count; i++)
                if (cstr_eq(w->wire[i].name, service))
                        return &w->wire[i];
        return NULL;
}

bool wires_scene_path(const struct wires *w, struct str path)
{
        for (size_t i = 0; i < w->scene_path_count; i++) {
                struct str prefix = str_of(w->scene_paths[i]);

                if (str_starts(path, prefix) &&
                    (str_ends(prefix, STR("/")) || path.n == prefix.n || path.p[prefix.n] == '/'))
                        return true;
        }
        return false;
}

/* ---- changing ---- */

static int not_declared(const struct wires *w, const char *service, struct err *e)
{
        _cleanup_buf_ struct buf names = BUF_MAX(1024);

        for (size_t i = 0; i < w->count; i++)
                if (buf_addf(&names, "%s%s", i ? ", " : "", w->wire[i].name) < 0)
                        break;
        return err_set(
                e, -EINVAL,
                "`service`: the box has no service \"%.64s\" (%s%.600s); `service` and `port` together declare it",
                service, w->count ? "it has " : "it has none", w->count ? buf_cstr(&names) : "");
}

static int check_combination(const struct wire_change *q, bool known, struct err *e)
{
        if (q->from_box && !q->port)
                return err_set(e, -EINVAL, "`port` is required with `fromBox`: the port of the name in this box");
        if (q->target_port && !q->port)
                return err_set(e, -EINVAL, "`port` is required with `targetPort`: the two are declared together");
        if (q->from_box && q->mode)
                return err_set(e, -EINVAL,
                               "`mode` and `fromBox` exclude each other: a linked name leads to the other box, got "
                               "mode \"%s\" and fromBox \"%.40s\"",
                               q->mode, q->from_box);
        if (!known && !q->port)
                return -ENOENT;
        return 0;
}

static int check_mode(const struct wires *w, const struct wire_change *q, struct err *e)
{
        if (q->mode && !cstr_eq(q->mode, "box") && !cstr_eq(q->mode, "external"))
                return err_set(e, -EINVAL, "`mode` must be box or external, got \"%.40s\"", q->mode);
        if (cstr_eq(q->mode, "external") && !w->external_base_url)
                return err_set(e, -EINVAL,
                               "`mode`: this box was started without externalBaseUrl, so nothing can be external: give "
                               "it to sandbox_start");
        return 0;
}

/* An empty place for a new name, or NULL with the reason. */
static struct wire *declare(struct wires *w, const char *service, struct err *e)
{
        if (cstr_eq(service, "localhost")) {
                (void) err_set(e, -EINVAL, "\"localhost\" cannot be a service: that name is the box itself");
                return NULL;
        }
        if (w->count == WIRES_MAX) {
                (void) err_set(e, -EINVAL, "a box has at most %d services, and this one has them all", WIRES_MAX);
                return NULL;
        }
        struct wire *one = &w->wire[w->count++];
        *one = (struct wire){ .mode = w->external_base_url ? WIRE_EXTERNAL : WIRE_BOX };
        (void) snprintf(one->name, sizeof one->name, "%s", service);
        return one;
}

static void set_ports(const struct wires *w, struct wire *one, const struct wire_change *q)
{
        one->port = (uint16_t) q->port;
        one->target_given = q->target_port != 0;
        one->target_port = (uint16_t) (q->target_port ? q->target_port : q->port);
        if (one->mode == WIRE_LINK) /* declared anew, as if for the first time */
                one->mode = w->external_base_url ? WIRE_EXTERNAL : WIRE_BOX;
        one->from_box[0] = '\0';
}

int wires_change(struct wires *w, const struct wire_change *q, struct err *e)
{
        struct wire *one = find(w, q->service);
        int r = check_combination(q, one != NULL, e);

        if (r == 0)
                r = check_mode(w, q, e);
        if (r == -ENOENT)
                return not_declared(w, q->service, e);
        if (r < 0)
                return r;
        if (!one)
                one = declare(w, q->service, e);
        if (!one)
                return -EINVAL;
        if (q->port)
                set_ports(w, one, q);
        if (q->from_box) {
                one->mode = WIRE_LINK;
                (void) snprintf(one->from_box, sizeof one->from_box, "%.32s", q->from_box);
        }
        if (q->mode) {
                one->mode = cstr_eq(q->mode, "external") ? WIRE_EXTERNAL : WIRE_BOX;
                one->from_box[0] = '\0';
        }
        if (q->has_web)
                one->web = q->web;
        return 0;
}

static bool scene_path_ok(const char *p)
{
        size_t n = strlen(p);

        if (n == 0 || n > SCENE_PATH_MAX || p[0] != '/' || strstr(p, "//") || strstr(p, "/./") || strstr(p, "/../") ||
            str_ends(str_of(p), STR("/.")) || str_ends(str_of(p), STR("/..")))
                return false;
        for (size_t i = 0; i < n; i++)
                if ((unsigned char) p[i] <= ' ' || p[i] == 0x7f || strchr("?#%\\\"<>", p[i]))
                        return false;
        return true;
}

int wires_set_scene_paths(struct wires *w, const struct json *paths, struct err *e)
{
        if (json_len(paths) && !w->external_base_url)
                return err_set(e, -EINVAL,
                               "`scenePaths`: this box was started without externalBaseUrl, so there is nothing to "
                               "forward to: give it to sandbox_start");
        if (json_len(paths) > SCENE_PATHS_MAX)
                return err_set(e, -EINVAL, "`scenePaths` holds at most %d, got %zu", SCENE_PATHS_MAX, json_len(paths));
        for (size_t i = 0; i < json_len(paths); i++) {
                const char *p = json_str(json_at(paths, i));

                if (!p || !scene_path_ok(p))
                        return err_set(e, -EINVAL,
                                       "`scenePaths[%zu]` must be a path prefix like \"/api\", decoded, without query, "
                                       "\"//\" or dot segments, got \"%.80s\"",
                                       i, p ? p : "");
        }
        drop_scene_paths(w);
        for (size_t i = 0; i < json_len(paths); i++)
                w->scene_paths[w->scene_path_count++] = xstrdup(json_str(json_at(paths, i)));
        return 0;
}

int wires_check_link(const struct control *c, const struct identity *who, const char *box, const char *from_box,
                     struct err *e)
{
        _cleanup_(box_row_done) struct box_row row = { 0 };

        if (cstr_eq(box, from_box))
                return err_set(e, -EINVAL, "`fromBox` is this box itself: mode box reaches its own ports");
        int r = boxes_get(c->db, who->account, from_box, &row, e);
        if (r < 0)
                return err_wrap(e, "`fromBox`");
        if (!cstr_eq(row.state, "running") && !cstr_eq(row.state, "frozen"))
                return err_set(e, -EINVAL, "`fromBox`: the box %s does not run (%s)", from_box, row.state);
        return 0;
}

static int begin_one(const struct control *c, const struct identity *who, const struct json *s, struct wires *w,
                     struct err *e)
{
        struct wire_change q = { .service = json_get_str(s, "name", ""),
                                 .port = json_get_int(s, "port", 0),
                                 .target_port = json_get_int(s, "targetPort", 0),
                                 .from_box = json_get_str(s, "fromBox", NULL),
                                 .has_web = json_has(s, "web"),
                                 .web = json_get_bool(s, "web", false) };
        int r = 0;

        if (json_has(s, "version"))
                return err_set(e, -EINVAL,
                               "`version` is not available yet: this server runs no published images; leave it out of "
                               "\"%.64s\" and start the service in the box",
                               q.service);
        if (wire_find(w, q.service))
                return err_set(e, -EINVAL, "it names \"%.64s\" twice: each name must be unique", q.service);
        if (q.from_box)
                r = wires_check_link(c, who, NULL, q.from_box, e);
        return r < 0 ? r : wires_change(w, &q, e);
}

int wires_begin(const struct control *c, const struct identity *who, const struct json *services,
                const char *external_base_url, struct wires *ret, struct err *e)
{
        int r = 0;

        *ret = (struct wires){ .count = 0 };
        if (external_base_url)
                r = external_url_check(c, external_base_url, &ret->external_base_url, e);
        for (size_t i = 0; r == 0 && i < json_len(services); i++) {
                r = begin_one(c, who, json_at(services, i), ret, e);
                if (r < 0)
                        (void) err_wrap(e, "`services[%zu]`", i);
        }
        if (r < 0)
                wires_done(ret);
        return r;
}

char *wires_services_text(const struct wires *w)
{
        _cleanup_json_ struct json *all = json_arr();

        for (size_t i = 0; i < w->count; i++) {
                const struct wire *one = &w->wire[i];
                struct json *s = json_obj();

                json_set_str(s, "name", one->name);
                json_set_int(s, "port", one->port);
                if (one->target_given)
                        json_set_int(s, "targetPort", one->target_port);
                if (one->web)
                        json_set_bool(s, "web", true);
                if (one->mode == WIRE_EXTERNAL)
                        json_set_str(s, "mode", "external");
                if (one->mode == WIRE_LINK)
                        json_set_str(s, "fromBox", one->from_box);
                json_push(all, s);
        }
        return json_text(all);
}

char *wires_wiring_text(const struct wires *w)
{
        _cleanup_json_ struct json *o = json_obj();

        json_set_str(o, "externalBaseUrl", w->external_base_url);
        if (w->scene_path_count) {
                struct json *paths = json_arr();

                for (size_t i = 0; i < w->scene_path_count; i++)
                        json_push(paths, json_new_str(w->scene_paths[i]));
                json_set(o, "scenePaths", paths);
        }
        return json_text(o);
}

/* ---- writing ---- */

void box_write_services(struct jw *w, const struct control *c, const struct box_row *row)
{
        _cleanup_wires_ struct wires all;

        wires_read(row, &all);
        jw_karr(w, "services");
        for (size_t i = 0; i < all.count; i++) {
                const struct wire *one = &all.wire[i];

                jw_obj(w);
                jw_kstr(w, "name", one->name);
                jw_kint(w, "port", one->port);
                jw_kint(w, "targetPort", one->target_port);
                jw_kstr(w, "mode", wire_mode_name(one->mode));
                if (one->mode == WIRE_LINK)
                        jw_kstr(w, "fromBox", one->from_box);
                jw_kbool(w, "web", one->web);
                scene_write_url(w, c, row->id, &all, i);
                jw_end(w);
        }
        jw_end(w);
}

static const char *link_state(struct control *c, const struct box_row *row, const char *other)
{
        _cleanup_(box_row_done) struct box_row to = { 0 };

        if (boxes_get(c->db, row->account, other, &to, NULL) < 0)
                return "gone";
        return cstr_eq(to.state, "running") ? "ready" : cstr_eq(to.state, "frozen") ? "frozen" : "stopped";
}

static void write_link(struct jw *w, struct control *c, const struct box_row *row, const struct wires *all,
                       size_t place)
{
        static const struct wire_count nothing;
        const struct wire *one = &all->wire[place];
        const struct wire_count *n = wire_counted(c, row->id, place);
        char at[RFC3339_LEN];

        if (!n)
                n = &nothing;
        jw_obj(w);
        jw_kstr(w, "service", one->name);
        jw_kint(w, "port", one->port);
        if (one->mode == WIRE_LINK) {
                jw_kstr(w, "fromBox", one->from_box);
                jw_kint(w, "targetPort", wire_link_port(c, row->account, one));
                jw_kstr(w, "status", link_state(c, row, one->from_box));
        } else {
                jw_kstr(w, "externalBaseUrl", all->external_base_url);
                jw_kstr(w, "status", n->error_at ? "failing" : "ready");
        }
        jw_kint(w, "open", (int64_t) n->open);
        jw_kint(w, "total", (int64_t) n->total);
        jw_kint(w, "failed", (int64_t) n->failed);
        if (n->error_at) {
                jw_kstr(w, "lastError", n->error);
                jw_kstr(w, "lastErrorAt", rfc3339(n->error_at, at));
        }
        jw_end(w);
}

struct linked {
        struct jw *w;
        const char *to;
};

static int write_linked(const struct box_row *row, void *arg)
{
        const struct linked *l = arg;
        _cleanup_wires_ struct wires all;

        wires_read(row, &all);
        for (size_t i = 0; i < all.count; i++) {
                if (all.wire[i].mode != WIRE_LINK || !cstr_eq(all.wire[i].from_box, l->to))
                        continue;
                jw_obj(l->w);
                jw_kstr(l->w, "id", row->id);
                jw_kstr(l->w, "name", row->name);
                jw_kstr(l->w, "service", all.wire[i].name);
                jw_kint(l->w, "port", all.wire[i].port);
                jw_end(l->w);
        }
        return 0;
}

void wires_write(struct jw *w, struct control *c, const struct box_row *row)
{
        struct linked from = { w, row->id };
        _cleanup_wires_ struct wires all;

        wires_read(row, &all);
        box_write_services(w, c, row);
        if (all.external_base_url)
                jw_kstr(w, "externalBaseUrl", all.external_base_url);
        if (all.scene_path_count) {
                jw_karr(w, "scenePaths");
                for (size_t i = 0; i < all.scene_path_count; i++)
                        jw_str(w, all.scene_paths[i]);
                jw_end(w);
        }
        jw_karr(w, "links");
        for (size_t i = 0; i < all.count; i++)
                if (all.wire[i].mode != WIRE_BOX)
                        write_link(w, c, row, &all, i);
        jw_end(w);
        jw_karr(w, "linkedFrom");
        (void) boxes_linking(c->db, row->account, row->id, write_linked, &from);
        jw_end(w);
}
