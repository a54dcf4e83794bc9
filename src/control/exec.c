#include "control/denied.h"
#include "control/secrets.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "loop/loop.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define PIECE ((size_t) 16 << 10)
/* Beyond a command's own limit, its daemon gets this long to end the tree and to answer. */
#define GRACE_MS 30000

void exec_result_init(struct exec_result *r, struct objects *objects)
{
        *r = (struct exec_result){ 0 };
        output_init(&r->out, objects);
        output_init(&r->err, objects);
}

void exec_result_done(struct exec_result *r)
{
        output_done(&r->out);
        output_done(&r->err);
}

void exec_result_mask(struct exec_result *r, struct mask *m, bool hold)
{
        output_mask(&r->out, m);
        output_mask(&r->err, m);
        if (hold) {
                output_hold(&r->out);
                output_hold(&r->err);
        }
}

static struct json *exec_head(const struct exec_request *q)
{
        struct json *h = json_obj();

        json_set_str(h, "op", "exec");
        json_set_str(h, "id", q->id);
        json_set_str(h, "cmd", q->cmd);
        json_set_str(h, "cwd", q->cwd);
        json_set_str(h, "note", q->note);
        if (q->env)
                json_set(h, "env", json_ref((struct json *) q->env));
        if (!q->background)
                json_set_int(h, "timeoutMs", q->timeout_ms);
        json_set_bool(h, "background", q->background);
        /* A background job takes input later as well (sandbox_procs). */
        json_set_bool(h, "stdin", q->background || (q->stdin_text && q->stdin_text[0]));
        return h;
}

struct feeder {
        struct guest_op *g;
        const char *text;
        bool done;
        struct waitq q;
};

/* Input goes in beside the reading of output: a command that writes before it reads would else block both. It may also
 * read late, or never. */
static void coroutine_fn feed_stdin(void *arg)
{
        struct feeder *f = arg;

        f->g->send_ms = -1;
        (void) guest_send(f->g, GUEST_STDIN, true, f->text, strlen(f->text));
        f->done = true;
        waitq_wake_all(&f->q);
}

/* A background job's call ends at once; its input goes on in its own time. */
struct late_input {
        struct control *c;
        char box[33], id[65];
        char *text;
};

static void coroutine_fn feed_late(void *arg)
{
        struct late_input *f = arg;
        _cleanup_guest_ struct guest_op g = { 0 };
        struct json *head = json_obj();

        json_set_str(head, "op", "procs");
        json_set_str(head, "action", "input");
        json_set_str(head, "id", f->id);
        json_set_bool(head, "close", true);
        if (guest_open(f->c, f->box, head, &g, NULL) == 0) {
                g.send_ms = -1;
                if (guest_send(&g, GUEST_STDIN, true, f->text, strlen(f->text)) == 0)
                        (void) guest_finish(&g, NULL);
        }
        free(f->text);
        free(f);
}

static int start_feeding_late(struct control *c, const char *box, const struct exec_request *q, struct err *e)
{
        struct late_input *f = xcalloc(1, sizeof *f);

        f->c = c;
        (void) snprintf(f->box, sizeof f->box, "%s", box);
        (void) snprintf(f->id, sizeof f->id, "%s", q->id);
        f->text = xstrdup(q->stdin_text);
        if (coro_start(feed_late, f, CORO_STACK_DEFAULT, "job stdin"))
                return 0;
        free(f->text);
        free(f);
        return err_set(e, -EAGAIN,
                       "the server is at its limit of running calls; the command was started without input");
}

static int coroutine_fn read_output(struct guest_op *g, struct exec_result *ret, struct err *e)
{
        _cleanup_free_ char *large = NULL; /* only while much comes: a call that waits costs no buffer */
        char small[256];

        for (;;) {
                enum guest_stream stream = GUEST_CONTROL;
                _cleanup_json_ struct json *control = NULL;
                char *p = large ? large : small;
                ssize_t n = guest_recv(g, p, large ? PIECE : sizeof small, &stream, &control, e);

                if (n == -ENODATA)
                        return 0;
                if (n < 0)
                        return (int) n;
                if (n > 0 && stream == GUEST_STDOUT)
                        output_add(&ret->out, p, (size_t) n);
                else if (n > 0 && stream == GUEST_STDERR)
                        output_add(&ret->err, p, (size_t) n);
                if (!large && n == sizeof small)
                        large = xmalloc(PIECE);
                else if (large && (size_t) n < sizeof small)
                        free(steal_ptr(large));
        }
}

static void coroutine_fn stop_job(struct control *c, const char *box, const char *id)
{
        struct json *head = json_obj();

        json_set_str(head, "op", "procs");
        json_set_str(head, "action", "stop");
        json_set_str(head, "id", id);
        coro_shield();
        (void) guest_ask(c, box, head, NULL, NULL);
        coro_unshield();
}

static int coroutine_fn converse(struct control *c, struct box *b, const struct exec_request *q,
                                 struct exec_result *ret, struct json **ret_job, struct err *e)
{
        _cleanup_guest_ struct guest_op g = { 0 };
        struct feeder f = { .g = &g, .text = q->stdin_text, .done = true };
        struct coro *feeding = NULL;
        int r = guest_open(c, b->id, exec_head(q), &g, e);

        if (r < 0)
                return r;
        g.idle_ms = q->background ? GRACE_MS : q->timeout_ms + GRACE_MS;
        waitq_init(&f.q);
        bool input = q->stdin_text && q->stdin_text[0];
        if (input && !q->background) {
                f.done = false;
                feeding = coro_start(feed_stdin, &f, CORO_STACK_DEFAULT, "exec stdin");
                if (!feeding)
                        return err_set(
                                e, -EAGAIN,
                                "the server is at its limit of running calls; the command was started without input");
        }
        r = read_output(&g, ret, e);
        if (!f.done) {
                coro_cancel(feeding);
                coro_shield();
                while (!f.done)
                        (void) waitq_wait(&f.q, -1);
                coro_unshield();
        }
        if (r == 0) {
                r = guest_result_error(g.result, e);
                *ret_job = json_ref(g.result);
        }
        if (r == 0 && input && q->background)
                r = start_feeding_late(c, b->id, q, e);
        return r;
}

/* A step as it is written down: no text in it holds a secret of the box's. */
struct step_texts {
        char *command, *directory, *note, *error;
};

static void step_texts_done(struct step_texts *t)
{
        free(t->command);
        free(t->directory);
        free(t->note);
        free(t->error);
}

static void step_from(struct step *s, const struct control *c, const struct exec_result *r, const struct err *e,
                      int code)
{
        const char *cancelled = c->stopping
                                        ? "the server stopped while this ran; sandbox_procs may still have its result"
                                        : "cancelled by the caller; its processes were ended";

        s->ended_at = wall_ms();
        s->exit_code = r->exit_code;
        s->has_exit = r->has_exit;
        s->signal = r->signal[0] ? r->signal : NULL;
        s->timed_out = r->timed_out;
        s->oom_killed = r->oom_killed;
        s->error = code >= 0 ? NULL : code == -ECANCELED ? cancelled : err_text(e);
}

int coroutine_fn exec_run(struct control *c, const struct identity *who, struct box *b, const struct exec_request *q,
                          struct exec_result *ret, struct err *e)
{
        _cleanup_free_ char *directory = cstr_eq(q->cwd, ".") ? xstrdup("/work") : xasprintf("/work/%s", q->cwd);
        _cleanup_(step_texts_done) struct step_texts texts = { 0 };
        _cleanup_mask_ struct mask *mask = NULL;
        int r = box_mask(c, b->id, &mask, e);

        if (r == 0 && mask_hits(mask, str_of(q->id)))
                r = err_set(e, -EINVAL, "`execId` must not hold the value of a secret; nothing was run");
        if (r < 0)
                return r;
        exec_result_mask(ret, mask, false);
        texts = (struct step_texts){ .command = mask_cstr(mask, q->cmd),
                                     .directory = mask_cstr(mask, directory),
                                     .note = mask_cstr(mask, q->note) };
        struct step s = { .box = b->id,
                          .tool = "sandbox_exec",
                          .exec_id = q->id,
                          .agent = who->agent[0] ? who->agent : NULL,
                          .command = texts.command,
                          .directory = texts.directory,
                          .note = texts.note,
                          .started_at = wall_ms() };
        _cleanup_json_ struct json *job = NULL;
        int64_t oom_before;
        r = steps_begin(c->db, &s, e);
        if (r < 0)
                return r;
        c->execs++;
        b->calls++;
        oom_before = q->background ? -1 : c->driver->ops->oom_kills(c->driver, b->id);
        r = converse(c, b, q, ret, &job, e);
        output_end(&ret->out);
        output_end(&ret->err);
        if (r == -ECANCELED && !c->stopping)
                stop_job(c, b->id, q->id);
        if (r == 0 && !q->background)
                exec_fill_ending(c, b, q->cmd, oom_before, job, ret);
        b->calls--;
        step_from(&s, c, ret, e, r);
        texts.error = mask_error(mask, s.error);
        s.error = texts.error;
        (void) steps_end(c->db, &s, NULL);
        return r;
}

/* Only the kernel's counter for the whole box tells. What moved it need not be the command's first process: a shell
 * lives on and reports. */
static void coroutine_fn ask_for_oom(struct control *c, struct box *b, int64_t before, bool killed,
                                     struct exec_result *ret)
{
        int64_t now;

        if (!killed && (before < 0 || !ret->has_exit || ret->exit_code == 0))
                return;
        now = c->driver->ops->oom_kills(c->driver, b->id);
        if (now <= (before >= 0 ? before : b->oom_kills))
                return;
        ret->oom_killed = true;
        if (now != b->oom_kills)
                (void) boxes_set_oom(c->db, b->id, now);
        b->oom_kills = now;
}

void coroutine_fn exec_fill_ending(struct control *c, struct box *b, const char *cmd, int64_t oom_before,
                                   const struct json *result, struct exec_result *ret)
{
        const char *signal = json_get_str(result, "signal", NULL);

        ret->has_exit = json_type(json_get(result, "exitCode")) == JSON_INT;
        ret->exit_code = json_get_int(result, "exitCode", 0);
        ret->timed_out = json_get_bool(result, "timedOut", false);
        ret->oom_killed = json_get_bool(result, "oomKilled", false);
        ret->duration_ms = json_get_int(result, "durationMs", 0);
        (void) snprintf(ret->signal, sizeof ret->signal, "%s", signal ? signal : "");
        if (!ret->oom_killed)
                ask_for_oom(c, b, oom_before,
                            json_get_bool(result, "sigkill", false) || cstr_eq(signal, "SIGKILL") ||
                                    ret->exit_code == 137,
                            ret);
        if (ret->has_exit && ret->exit_code != 0)
                denied_explain(c, b->id, cmd, ret);
}

/* What a box says is not believed to be a count. */
static uint64_t count_in(const struct json *result, const char *key)
{
        int64_t n = json_get_int(result, key, 0);

        return n > 0 ? (uint64_t) n : 0;
}

int coroutine_fn exec_collect(struct control *c, struct guest_op *g, unsigned cuts, struct exec_result *ret,
                              struct json **job, struct err *e)
{
        (void) c;
        int r = read_output(g, ret, e);
        if (r == 0)
                r = guest_result_error(g->result, e);
        if (r < 0)
                return r;
        if (json_get_bool(g->result, "running", false))
                cuts |= MASK_CUT_AFTER;
        output_release(&ret->out, count_in(g->result, "stdoutOmitted"), count_in(g->result, "stdoutOmittedAt"), cuts);
        output_release(&ret->err, count_in(g->result, "stderrOmitted"), count_in(g->result, "stderrOmittedAt"), cuts);
        *job = json_ref(g->result);
        return 0;
}

static void write_object(const void *p, size_t n, void *arg)
{
        (void) object_write(arg, p, n); /* its error stays in it */
}

static int coroutine_fn read_whole(struct guest_op *g, struct mask *mask, struct object_writer *w)
{
        _cleanup_free_ char *piece = xmalloc(PIECE);
        _cleanup_(mask_done) struct mask_stream masked;

        mask_begin(&masked, mask);

        for (;;) {
                enum guest_stream stream = GUEST_CONTROL;
                _cleanup_json_ struct json *control = NULL;
                ssize_t n = guest_recv(g, piece, PIECE, &stream, &control, NULL);

                if (n == -ENODATA)
                        break;
                if (n < 0)
                        return (int) n;
                if (w->bytes + n > OUTPUT_STORED_MAX)
                        return -EFBIG;
                if (n > 0)
                        mask_feed(&masked, piece, (size_t) n, write_object, w);
                if (w->r < 0)
                        return w->r;
        }
        mask_end(&masked, false, write_object, w);
        int r = w->r < 0 ? w->r : guest_result_error(g->result, NULL);
        if (r < 0)
                return r;
        return json_len(json_get(g->result, "omitted")) || json_has(g->result, "notKept") ? -ENODATA : 0;
}

void coroutine_fn exec_fetch_whole(struct control *c, const char *box, const char *id, const char *name,
                                   struct output *o)
{
        _cleanup_guest_ struct guest_op g = { 0 };
        struct object_writer w = { .fd = -1 };
        struct json *head;

        if (!o->omitted_before)
                return;
        head = json_obj();
        json_set_str(head, "op", "procs");
        json_set_str(head, "action", "output");
        json_set_str(head, "id", id);
        json_set_str(head, "stream", name);
        int r = guest_open(c, box, head, &g, NULL);
        if (r == 0) {
                g.idle_ms = 60000;
                r = object_begin(c->objects, &w, NULL);
        }
        if (r == 0)
                r = read_whole(&g, o->mask.m, &w);
        if (r == 0)
                output_take_whole(o, &w);
        else
                object_abort(&w);
}

static void write_links(struct jw *w, struct control *c, const struct identity *who, const char *box,
                        struct exec_result *r, bool out_cut, bool err_cut)
{
        const char *why = NULL, *why_err = NULL;
        _cleanup_free_ char *out = NULL, *err = NULL;

        if (out_cut || !output_exact(&r->out))
                out = output_link(&r->out, c, who->account, box, "stdout.txt", &why);
        if (err_cut || !output_exact(&r->err))
                err = output_link(&r->err, c, who->account, box, "stderr.txt", &why_err);
        if (out || err)
                jw_kstr(w, "outputUrl", out ? out : err);
        if (out && err)
                jw_kstr(w, "stderrUrl", err);
        if (why || why_err) {
                _cleanup_free_ char *note = xasprintf("the whole output cannot be given: %s", why ? why : why_err);

                jw_kstr(w, "outputNote", note);
        }
}

/* Splits the room between the streams: a short one leaves its share to the other. */
static void share(const struct exec_result *r, size_t limit, size_t *out, size_t *err)
{
        size_t o = (size_t) (r->out.total < limit ? r->out.total : limit);
        size_t n = (size_t) (r->err.total < limit ? r->err.total : limit);

        *out = n < limit / 2 ? limit - n : max_size(limit / 2, limit - min_size(limit, n));
        *err = o < limit / 2 ? limit - o : limit - *out;
        if (o + n <= limit) {
                *out = max_size(o, 1);
                *err = max_size(n, 1);
        }
}

void exec_write(struct jw *w, struct control *c, const struct identity *who, const char *box, struct exec_result *r,
                size_t text_limit)
{
        _cleanup_buf_ struct buf out = BUF_MAX(4 * OUTPUT_INLINE), err = BUF_MAX(4 * OUTPUT_INLINE),
                                 escaped = BUF_MAX(32 * OUTPUT_INLINE);
        bool out_cut = false, err_cut = false;
        size_t limit = text_limit;

        /* What counts is the size after JSON escaping, up to six times the bytes: shrink until it fits. */
        for (;; limit = limit * 2 / 3) {
                size_t out_limit, err_limit;
                struct jw probe;

                share(r, limit, &out_limit, &err_limit);
                buf_clear(&out);
                buf_clear(&err);
                buf_clear(&escaped);
                out_cut = output_text(&r->out, out_limit, &out);
                err_cut = output_text(&r->err, err_limit, &err);
                jw_init(&probe, &escaped);
                jw_arr(&probe);
                jw_strn(&probe, buf_str(&out));
                jw_strn(&probe, buf_str(&err));
                (void) jw_end_all(&probe);
                if (escaped.len <= text_limit + 2048 || limit < 512)
                        break;
        }
        if (r->has_exit)
                jw_kint(w, "exitCode", r->exit_code);
        jw_key(w, "signal");
        jw_str(w, r->signal[0] ? r->signal : NULL);
        jw_kbool(w, "timedOut", r->timed_out);
        jw_kbool(w, "oomKilled", r->oom_killed);
        jw_kstrn(w, "stdout", buf_str(&out));
        jw_kstrn(w, "stderr", buf_str(&err));
        jw_kbool(w, "truncated", out_cut || err_cut);
        write_links(w, c, who, box, r, out_cut, err_cut);
        if (r->denied[0][0]) {
                jw_karr(w, "denied");
                for (size_t i = 0; i < ARRAY_LEN(r->denied) && r->denied[i][0]; i++)
                        jw_str(w, r->denied[i]);
                jw_end(w);
        }
        jw_kint(w, "durationMs", r->duration_ms);
}
