#include "boxhost/request.h"

#include "boxhost/archive.h"
#include "boxhost/box.h"
#include "boxhost/share.h"
#include "boxhost/sys.h"
#include "boxhost/wire.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/str.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define LIST_BYTES 60000 /* leaves room in a message of 64 KiB */
#define ARCHIVES_A_PAGE 500
#define GIB (1ULL << 30)

struct op {
        struct host *h;
        const struct json *in;
        struct jw *out;
        struct request_result *result;
};

static int need_box(struct op *o, const char **ret, struct err *e)
{
        int r = json_need_str(o->in, "box", ret, e);

        if (r == 0 && !box_id_ok(*ret))
                return err_set(e, -EINVAL, "`box` must be 4 to 32 of a-z and 0-9");
        return r;
}

static int find_box(struct op *o, struct box **ret, struct err *e)
{
        const char *id;
        int r = need_box(o, &id, e);

        if (r < 0)
                return r;
        *ret = host_find(o->h, id);
        return *ret ? 0 : err_set(e, -ENOENT, "there is no box %s", id);
}

static int op_hello(struct op *o, struct err *e)
{
        _cleanup_free_ char *oom = cg_oom_file(&o->h->cgroups);

        (void) e;
        jw_kstr(o->out, "version", PSBX_VERSION);
        jw_kstr(o->out, "instance", o->h->instance);
        jw_kstr(o->out, "oomFile", oom);
        features_print(&o->h->features, o->out);
        return 0;
}

static int read_env(const char *name, struct json *value, void *arg)
{
        struct box_request *q = arg;
        const char *text = json_str(value);
        char *assignment;

        if (!text || strchr(name, '=') || q->env_count == BOX_ENV_MAX)
                return -EINVAL;
        assignment = xasprintf("%s=%s", name, text);
        q->env[q->env_count++] = assignment;
        return box_env_ok(assignment) ? 0 : -EINVAL;
}

static int read_request(struct op *o, struct box_request *q, char default_image[IMAGE_NAME_MAX + 1], struct err *e)
{
        const struct json *size = json_get(o->in, "size"), *env = json_get(o->in, "env"),
                          *cpus = json_get(size, "cpus");
        int64_t memory = json_get_int(size, "memoryBytes", 2 * GIB), pids = json_get_int(size, "pids", 512);
        int64_t disk = json_get_int(size, "diskBytes", 10 * GIB);
        int r = need_box(o, &q->id, e);

        if (r < 0)
                return r;
        image_default(o->h->images_dir, default_image);
        q->image = json_get_str(o->in, "image", q->restore ? NULL : default_image);
        q->hostname = json_get_str(o->in, "hostname", q->id);
        if (!box_hostname_ok(q->hostname))
                return err_set(e, -EINVAL, "`hostname` must be 1 to 63 letters, digits or hyphens");
        q->size = (struct box_size){ .cpus = cpus ? json_double(cpus) : 1.0,
                                     .memory = memory > 0 ? (uint64_t) memory : 0,
                                     .pids = pids > 0 ? (uint64_t) pids : 0,
                                     .disk = disk > 0 ? (uint64_t) disk : 0 };
        box_size_clamp(&q->size);
        if (env && json_each(env, read_env, q) != 0)
                return err_set(e, -EINVAL, "`env` must map at most %d names to texts", BOX_ENV_MAX);
        return 0;
}

static void print_place(const struct host *h, const struct box *b, struct jw *w)
{
        char address[INET_ADDRSTRLEN], path[sizeof(h->folder) + BOX_ID_MAX + 16];

        net_print(net_address(&h->options->subnet, b->index), address);
        snprintf(path, sizeof(path), "%s/run/%s.sock", h->folder, b->id);
        jw_kstr(w, "socket", path);
        if (h->features.net && b->index < NET_INDEX_MAX)
                jw_kstr(w, "address", address);
        jw_kint(w, "index", b->index);
        jw_kint(w, "pid", b->pid);
}

static void print_timings(const struct box_timings *t, struct jw *w)
{
        jw_kobj(w, "timings");
        jw_kint(w, "disk", t->disk);
        jw_kint(w, "cgroup", t->cgroup);
        jw_kint(w, "clone", t->clone);
        jw_kint(w, "net", t->net);
        jw_kint(w, "idmap", t->idmap);
        jw_kint(w, "mounts", t->mounts);
        jw_kint(w, "record", t->record);
        jw_kint(w, "ready", t->ready);
        jw_kint(w, "total", t->total);
        jw_end(w);
}

static int make_box(struct op *o, bool restore, struct err *e)
{
        struct box_request q = { .restore = restore };
        struct box_timings t;
        char default_image[IMAGE_NAME_MAX + 1];
        struct box *b = NULL;
        int r = read_request(o, &q, default_image, e);

        if (r == 0) {
                o->result->refill = !restore;
                r = box_create(o->h, &q, &b, &t, e);
        }
        for (size_t i = 0; i < q.env_count; i++)
                freep(&q.env[i]);
        if (r < 0 || !b)
                return r < 0 ? r : -EIO;
        o->result->created = b;
        share_out(o->h);
        print_place(o->h, b, o->out);
        print_timings(&t, o->out);
        if (restore)
                jw_kbool(o->out, "renewed", t.renewed);
        return 0;
}

static int op_create(struct op *o, struct err *e)
{
        return make_box(o, false, e);
}

static int op_restore(struct op *o, struct err *e)
{
        return make_box(o, true, e);
}

static int op_destroy(struct op *o, struct err *e)
{
        const char *id;
        int r = need_box(o, &id, e);

        if (r == 0)
                r = archive_delete(o->h, id, e);
        return r < 0 ? r : box_destroy(o->h, id, &o->result->rest, e);
}

static int op_archive(struct op *o, struct err *e)
{
        const char *id;
        int r = need_box(o, &id, e);

        return r < 0 ? r : box_archive(o->h, id, &o->result->rest, e);
}

static void print_archive(const struct archive *a, void *arg)
{
        struct op *o = arg;

        jw_obj(o->out);
        jw_kstr(o->out, "box", a->id);
        jw_kint(o->out, "bytes", a->bytes);
        jw_end(o->out);
}

static int op_archives(struct op *o, struct err *e)
{
        char next[BOX_ID_MAX + 1];
        int r;

        jw_karr(o->out, "archives");
        r = archive_each(o->h, json_get_str(o->in, "after", ""), ARCHIVES_A_PAGE, print_archive, o, next, e);
        jw_end(o->out);
        if (r == 0 && next[0])
                jw_kstr(o->out, "next", next);
        return r;
}

static int op_freeze(struct op *o, struct err *e)
{
        struct box *b;
        int r = find_box(o, &b, e);

        return r < 0 ? r : box_freeze(o->h, b, true, e);
}

static int op_thaw(struct op *o, struct err *e)
{
        struct box *b;
        int r = find_box(o, &b, e);

        if (r == 0)
                r = box_freeze(o->h, b, false, e);
        if (r == 0)
                share_out(o->h);
        return r;
}

static void print_box(const struct host *h, const struct box *b, struct jw *w)
{
        static const char *const states[] = { [BOX_RUNNING] = "running", [BOX_FROZEN] = "frozen", [BOX_DEAD] = "dead" };

        jw_obj(w);
        jw_kstr(w, "box", b->id);
        jw_kstr(w, "state", states[b->state]);
        print_place(h, b, w);
        jw_kint(w, "createdAt", b->created_ms);
        jw_kstr(w, "image", b->image);
        jw_kobj(w, "size");
        jw_key(w, "cpus");
        jw_double(w, b->size.cpus);
        jw_kint(w, "memoryBytes", (int64_t) b->size.memory);
        jw_kint(w, "pids", (int64_t) b->size.pids);
        jw_kint(w, "diskBytes", (int64_t) b->size.disk);
        jw_end(w);
        jw_end(w);
}

static int op_list(struct op *o, struct err *e)
{
        const char *after = json_get_str(o->in, "after", ""), *last = NULL;
        bool more = false;

        (void) e;
        jw_karr(o->out, "boxes");
        list_for_each (it, &o->h->boxes) {
                const struct box *b = list_entry(it, struct box, link);
                if (strcmp(b->id, after) <= 0)
                        continue;
                if (o->out->b->len > LIST_BYTES) {
                        more = true;
                        break;
                }
                print_box(o->h, b, o->out);
                last = b->id;
        }
        jw_end(o->out);
        if (more)
                jw_kstr(o->out, "next", last);
        return 0;
}

static void print_pair(struct jw *w, const char *key, uint64_t used, uint64_t limit)
{
        jw_kobj(w, key);
        jw_kint(w, "used", (int64_t) used);
        jw_kint(w, "limit", limit > INT64_MAX ? INT64_MAX : (int64_t) limit);
        jw_end(w);
}

static int op_stats(struct op *o, struct err *e)
{
        struct cg_stats s;
        uint64_t used, limit;
        struct box *b;
        int r = find_box(o, &b, e);

        if (r < 0)
                return r;
        r = cg_read_stats(&o->h->cgroups, b->id, &s);
        if (r < 0)
                return err_sys(e, r, "cannot read the counters of box %s", b->id);
        box_disk_usage(b, &used, &limit);
        jw_kint(o->out, "cpuUsec", (int64_t) s.cpu_usec);
        print_pair(o->out, "memory", s.memory_used, s.memory_limit);
        print_pair(o->out, "pids", s.pids_used, s.pids_limit);
        print_pair(o->out, "disk", used, limit);
        jw_kint(o->out, "oomKills", (int64_t) s.oom_kills);
        return 0;
}

struct image_list {
        const struct host *h;
        struct jw *w;
        const char *usual;
};

static void print_image(const char *name, void *arg)
{
        char version[IMAGE_SKELETON_MAX] = "rootfs";
        struct image_list *l = arg;

        if (l->w->b->len > LIST_BYTES)
                return; /* some hundreds fit */
        jw_obj(l->w);
        jw_kstr(l->w, "name", name);
        jw_kbool(l->w, "ready", true);
        jw_kbool(l->w, "default", strcmp(name, l->usual) == 0);
        (void) image_current(l->h->images_dir, name, version);
        jw_kstr(l->w, "version", strcmp(name, IMAGE_HOST) == 0 ? l->h->skeleton : version);
        jw_end(l->w);
}

static int op_images(struct op *o, struct err *e)
{
        char usual[IMAGE_NAME_MAX + 1];
        struct image_list l = { o->h, o->out, usual };

        (void) e;
        image_default(o->h->images_dir, usual);
        jw_kstr(o->out, "default", usual);
        jw_karr(o->out, "images");
        image_each(o->h->images_dir, print_image, &l);
        jw_end(o->out);
        return 0;
}

static int op_wire(struct op *o, struct err *e)
{
        char address[INET_ADDRSTRLEN];

        if (o->h->wire < 0 || !o->h->features.net)
                return err_set(e, -ENOTSUP, "boxes have no network on this machine");
        net_print(net_wire_address(&o->h->options->subnet, 0), address);
        jw_kstr(o->out, "first", address);
        jw_kint(o->out, "count", NET_WIRES_MAX);
        o->result->handed = o->h->wire;
        return 0;
}

/* Appends the names of a request, each with its NUL. */
static int read_names(const struct json *names, struct buf *out, struct err *e)
{
        if (json_type(names) != JSON_ARRAY || json_len(names) > NET_WIRES_MAX)
                return err_set(e, -EINVAL, "`names` must be an array of at most %u", NET_WIRES_MAX);
        for (size_t i = 0; i < json_len(names); i++) {
                const char *name = json_str(json_at(names, i));
                if (!name || !wire_name_ok(name))
                        return err_set(e, -EINVAL, "`names[%zu]` is no host name of one label", i);
                if (buf_add(out, name, strlen(name) + 1) < 0)
                        return err_set(e, -ENOMEM, "no memory for the names");
        }
        return 0;
}

static int op_names(struct op *o, struct err *e)
{
        _cleanup_buf_ struct buf names = BUF_MAX(NET_WIRES_MAX * (NET_WIRE_NAME_MAX + 1) + 1);
        struct box *b;
        int r = find_box(o, &b, e);

        if (r == 0)
                r = read_names(json_get(o->in, "names"), &names, e);
        if (r < 0)
                return r;
        if (b->state == BOX_DEAD)
                return err_set(e, -ESRCH, "box %s is dead", b->id);
        size_t n = names.len;
        wire_names_set(o->h, b, n > 0 ? buf_steal(&names) : NULL, n);
        return 0;
}

static const struct {
        const char *name;
        int (*run)(struct op *o, struct err *e);
} ops[] = {
        { "hello", op_hello },     { "create", op_create },   { "destroy", op_destroy },   { "freeze", op_freeze },
        { "thaw", op_thaw },       { "list", op_list },       { "stats", op_stats },       { "images", op_images },
        { "archive", op_archive }, { "restore", op_restore }, { "archives", op_archives }, { "wire", op_wire },
        { "names", op_names },
};

static int run(struct op *o, struct err *e)
{
        const char *name;
        int r = json_need_str(o->in, "op", &name, e);

        if (r < 0)
                return r;
        for (size_t i = 0; i < ARRAY_LEN(ops); i++) {
                if (strcmp(ops[i].name, name) == 0)
                        return ops[i].run(o, e);
        }
        return err_set(e, -ENOSYS, "there is no such operation");
}

static void begin(struct jw *w, struct buf *out, const struct json *in)
{
        const struct json *id = json_get(in, "id");

        buf_clear(out);
        jw_init(w, out);
        jw_obj(w);
        jw_key(w, "id");
        jw_json(w, id);
}

void request_answer(struct host *h, const char *p, size_t n, struct buf *out, struct request_result *ret)
{
        _cleanup_json_ struct json *in = NULL;
        struct err e = { 0 };
        struct jw w;
        struct op o = { .h = h, .out = &w, .result = ret };
        int r = json_parse(p, n, &in, &e);

        *ret = (struct request_result){ .rest = BOX_REST_NONE, .handed = -1 };
        begin(&w, out, in);
        if (r == 0 && json_type(in) != JSON_OBJECT)
                r = err_set(&e, -EINVAL, "a request must be an object");
        o.in = in;
        if (r == 0)
                r = run(&o, &e);
        if (r < 0) {
                const char *code = strerrorname_np(-r);
                begin(&w, out, in);
                jw_kstr(&w, "error", err_text(&e));
                jw_kstr(&w, "code", code ? code : "EIO");
        }
        (void) jw_end_all(&w);
}
