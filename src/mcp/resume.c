/*
 * resume: what is kept of a call's stream, and GET with Last-Event-ID, which takes it up again. Event ids are
 * "<stream>-<number>": 24 characters that cannot be guessed and that lead nowhere outside of the account and session
 * that had them, and the event's place. Number 0 is the event without data that opens the stream.
 */
#include "mcp/internal.h"

#include "base/ids.h"

#include <stdio.h>
#include <stdlib.h>

#define STREAM_ID_LEN 24

struct note {
        char *text;
        uint64_t number;
};

struct replay {
        struct list link; /* in s->replays_kept, once the call has ended */
        struct mcp_server *s;
        struct owner *owner;
        struct mcp_request *call;        /* NULL once it has ended */
        char *key;                       /* in s->replays; ends with the stream's id */
        uint64_t last;                   /* the newest event's number */
        struct note notes[REPLAY_NOTES]; /* number n at n % REPLAY_NOTES */
        char *response;
        size_t response_len;
        int64_t until;
};

bool replay_possible(const struct exchange *x)
{
        return x->session[0] && cstr_eq(x->version, MCP_RESUMABLE_VERSION) && (x->accept & ACCEPT_SSE) && !x->modern;
}

/* "<owner> <session> ": a stream is looked for among those of one session of one account only. */
static size_t scope_len(const char *key)
{
        const char *owner_end = strchr(key, SCOPE_SEPARATOR);
        const char *end = owner_end ? strchr(owner_end + 1, SCOPE_SEPARATOR) : NULL;

        return end ? (size_t) (end - key) + 1 : 0;
}

struct replay *replay_new(struct mcp_server *s, struct owner *o, const char *call_key, struct mcp_request *call)
{
        struct replay *p = xcalloc(1, sizeof(*p));
        char id[STREAM_ID_LEN + 1];

        random_id(id, STREAM_ID_LEN);
        p->s = s;
        p->owner = o;
        p->call = call;
        p->key = xasprintf("%.*s%s", (int) scope_len(call_key), call_key, id);
        o->n_replays++;
        (void) map_put(s->replays, str_of(p->key), p);
        return p;
}

static void replay_free(struct replay *p)
{
        struct mcp_server *s = p->s;

        (void) map_del(s->replays, str_of(p->key));
        if (!p->call) {
                list_remove(&p->link);
                s->n_replays_kept--;
                s->replay_bytes -= p->response_len;
                p->owner->replay_bytes -= p->response_len;
        }
        p->owner->n_replays--;
        owner_put(s, p->owner);
        for (size_t i = 0; i < REPLAY_NOTES; i++)
                free(p->notes[i].text);
        free(p->response);
        free(p->key);
        free(p);
}

void replay_id(const struct replay *p, uint64_t number, char id[static REPLAY_ID_MAX])
{
        (void) snprintf(id, REPLAY_ID_MAX, "%s-%llu", p->key + strlen(p->key) - STREAM_ID_LEN,
                        (unsigned long long) number);
}

uint64_t replay_note(struct replay *p, struct str text)
{
        struct note *n = &p->notes[++p->last % REPLAY_NOTES];

        free(n->text);
        n->text = text.n <= REPLAY_NOTE_MAX ? xstrndup(text.p, text.n) : NULL;
        n->number = p->last;
        return p->last;
}

/* The kept note with that number, or NULL. */
static const char *note_at(const struct replay *p, uint64_t number)
{
        const struct note *n = &p->notes[number % REPLAY_NOTES];

        return n->number == number ? n->text : NULL;
}

static uint64_t first_after(const struct replay *p, uint64_t after)
{
        uint64_t oldest = p->last > REPLAY_NOTES ? p->last - REPLAY_NOTES + 1 : 1;

        return after + 1 > oldest ? after + 1 : oldest;
}

void replay_post(const struct replay *p, struct sse *sse, uint64_t after)
{
        for (uint64_t i = first_after(p, after); i <= p->last; i++) {
                char id[REPLAY_ID_MAX];

                if (!note_at(p, i))
                        continue;
                replay_id(p, i, id);
                (void) sse_post(sse, NULL, id, str_of(note_at(p, i)));
        }
}

/* ---- ended calls ---- */

static struct replay *oldest(const struct mcp_server *s)
{
        return list_empty(&s->replays_kept) ? NULL : list_entry(s->replays_kept.next, struct replay, link);
}

static void on_timer(void *arg)
{
        struct mcp_server *s = arg;
        struct replay *p;

        while ((p = oldest(s)) && p->until <= loop_now())
                replay_free(p);
        if (p)
                timer_reset(s->replay_timer, p->until - loop_now());
        else
                timer_stop(&s->replay_timer);
}

static struct replay *oldest_of(const struct mcp_server *s, const struct owner *o)
{
        list_for_each (it, &s->replays_kept)
                if (list_entry(it, struct replay, link)->owner == o)
                        return list_entry(it, struct replay, link);
        return NULL;
}

static void make_room(struct mcp_server *s, const struct owner *o)
{
        struct replay *p;

        while ((p = oldest(s)) && (s->replay_bytes > REPLAY_ALL_MAX || s->n_replays_kept > REPLAY_COUNT_MAX))
                replay_free(p);
        /* The newest alone is under the limit, so its owner outlives this. */
        while (o->replay_bytes > REPLAY_OWNER_MAX && (p = oldest_of(s, o)))
                replay_free(p);
}

static void keep_response(struct replay *p, const char *request_id, struct str response)
{
        _cleanup_buf_ struct buf b = BUF_MAX(64 << 10);

        if (response.n > REPLAY_RESPONSE_MAX) {
                (void) rpc_error_body(
                        &b, request_id, RPC_INTERNAL_ERROR,
                        "Internal error: the connection was lost and the result was too large to be kept; "
                        "the tool has done its work");
                response = buf_str(&b);
        }
        p->response = xstrndup(response.p, response.n);
        p->response_len = response.n;
}

uint64_t replay_last(const struct replay *p)
{
        return p->last;
}

void replay_end(struct replay *p, const char *request_id, struct str response)
{
        struct mcp_server *s = p->s;

        if (!response.p) {
                replay_free(p);
                return;
        }
        p->call = NULL;
        keep_response(p, request_id, response);
        p->until = loop_now() + REPLAY_KEEP_MS;
        list_append(&s->replays_kept, &p->link);
        s->n_replays_kept++;
        s->replay_bytes += p->response_len;
        p->owner->replay_bytes += p->response_len;
        if (!s->replay_timer)
                s->replay_timer = timer_start(REPLAY_KEEP_MS, 0, on_timer, s);
        make_room(s, p->owner);
}

void replays_free(struct mcp_server *s)
{
        struct replay *p;

        while ((p = oldest(s)))
                replay_free(p);
        timer_stop(&s->replay_timer);
        map_free(s->replays);
}

/* ---- GET with Last-Event-ID ---- */

struct event {
        char id[REPLAY_ID_MAX];
        char *text;
};

/* Copies, because writing suspends and what is kept may be dropped meanwhile. */
static size_t copy_events(const struct replay *p, uint64_t after, struct event events[static REPLAY_NOTES + 1])
{
        size_t n = 0;

        for (uint64_t i = first_after(p, after); i <= p->last; i++) {
                if (!note_at(p, i))
                        continue;
                replay_id(p, i, events[n].id);
                events[n++].text = xstrdup(note_at(p, i));
        }
        /* A client that has seen the response and asks again gets an empty stream. */
        if (after <= p->last) {
                replay_id(p, p->last + 1, events[n].id);
                events[n++].text = xstrdup(p->response);
        }
        return n;
}

static void coroutine_fn send_kept(struct exchange *x, const struct replay *p, uint64_t after)
{
        struct event *events = xcalloc(REPLAY_NOTES + 1, sizeof(*events));
        size_t n = copy_events(p, after, events);
        int r = sse_start(x->c);

        for (size_t i = 0; i < n; i++) {
                if (r == 0)
                        r = sse_event(x->c, NULL, events[i].id, str_of(events[i].text));
                free(events[i].text);
        }
        free(events);
}

/* Splits an id of ours; false for anything else. */
static bool parse_id(struct str id, struct str *stream, uint64_t *number)
{
        if (id.n <= STREAM_ID_LEN + 1 || id.n >= REPLAY_ID_MAX || id.p[STREAM_ID_LEN] != '-')
                return false;
        *stream = str_n(id.p, STREAM_ID_LEN);
        return parse_u64(str_n(id.p + STREAM_ID_LEN + 1, id.n - STREAM_ID_LEN - 1), INT64_MAX, number) == 0;
}

bool coroutine_fn serve_resume(struct exchange *x)
{
        struct str stream;
        uint64_t after;

        if (!parse_id(call_header(x->c, "last-event-id"), &stream, &after))
                return false;
        _cleanup_free_ char *id = xstrndup(stream.p, stream.n);
        _cleanup_free_ char *key = scoped_key(x->owner, x->session, id);
        struct replay *p = map_get(x->s->replays, str_of(key));

        /* Neither 400 nor 404: clients take those for the end of their session. */
        if (!p)
                reply_error(
                        x, 410, NULL, RPC_INVALID_REQUEST,
                        "nothing is kept for this Last-Event-ID: the call ended more than %d s ago, was cancelled, or "
                        "belongs to another session",
                        REPLAY_KEEP_MS / 1000);
        else if (p->call)
                request_resume(p->call, x->c, after);
        else
                send_kept(x, p, after);
        return true;
}
