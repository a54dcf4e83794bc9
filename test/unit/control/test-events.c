/* The events of an account on real streams: resuming, what is forgotten, slow readers, foreign accounts, limits. */
#include "../http/http-test.h"
#include "scratch.h"

#include "base/mem.h"
#include "control/events.h"

static struct scratch *scratch;
static struct control control;

/* "/a" is the stream of account "a". */
static void coroutine_fn handle(struct call *c, void *arg)
{
        char account[16];

        (void) arg;
        (void) snprintf(account, sizeof account, "%.*s", (int) call_path(c).n - 1, call_path(c).p + 1);
        events_serve(control.events, c, account, call_header(c, "Last-Event-ID"));
}

static struct wire *coroutine_fn watch(const char *account, const char *since)
{
        struct wire *w = wire_open();
        _cleanup_free_ char *head = xasprintf("GET /%s HTTP/1.1\r\nHost: h\r\n%s%s%s\r\n", account,
                                              since ? "Last-Event-ID: " : "", since ? since : "", since ? "\r\n" : "");

        wire_send(w, head);
        wire_expect(w, "HTTP/1.1 200 OK\r\n");
        wire_expect(w, "retry: 1000\n\n");
        return w;
}

/* The next event: its name must be this; its id into id. */
static void coroutine_fn expect(struct wire *w, const char *name, char id[24])
{
        _cleanup_free_ char *line = xasprintf("event: %s\nid: ", name);

        wire_expect(w, line);
        while (!memchr(w->in.p, '\n', w->in.len)) {
                char *p = buf_room(&w->in, 4096);
                ssize_t n = stream_read(w->s, p, 4096, 5000);

                CHECK(n > 0);
                buf_grew(&w->in, (size_t) n);
        }
        struct str rest = buf_str(&w->in), got = str_cut(&rest, '\n');
        (void) snprintf(id, 24, "%.*s", (int) got.n, got.p);
        wire_expect(w, "\n\n");
}

static void publish(const char *account, size_t n, size_t size)
{
        _cleanup_free_ char *data = xmalloc(size);

        memset(data, 'x', size);
        for (size_t i = 0; i < n; i++)
                events_publish(control.events, account, "fact", str_n(data, size));
}

static void begin(void)
{
        control = (struct control){ .db = scratch->db, .boxes = map_new() };
        control.events = events_new(&control);
        serve_with(NULL, handle);
}

static void coroutine_fn finish(void)
{
        events_end_all(control.events);
        serve_end();
        events_free(control.events);
        map_free(control.boxes);
}

static void resumes(void *arg)
{
        char id[24], first[24], last[24];
        struct wire *a;

        (void) arg;
        begin();
        a = watch("a", NULL);
        expect(a, "ready", first);
        publish("a", 3, 10);
        expect(a, "fact", id);
        wire_close(a);
        publish("a", 2, 10);
        /* From the one that was read: the other two, the two of the time between, and what comes now; each once. */
        a = watch("a", id);
        uint64_t before = strtoull(id, NULL, 10);
        publish("a", 1, 10);
        for (uint64_t i = 1; i <= 5; i++) {
                expect(a, "fact", last);
                CHECK_INT(strtoull(last, NULL, 10), before + i);
        }
        CHECK(a->in.len < 16); /* and no more: at most the end of a chunk */
        wire_close(a);
        /* From the very start; and from the end, where nothing is missing. */
        a = watch("a", first);
        expect(a, "fact", id);
        CHECK_INT(strtoull(id, NULL, 10), strtoull(first, NULL, 10) + 1);
        wire_close(a);
        a = watch("a", last);
        publish("a", 1, 10);
        expect(a, "fact", id);
        CHECK_INT(strtoull(id, NULL, 10), before + 6);
        wire_close(a);
        finish();
}

static void resets(void *arg)
{
        static const char *const strange[] = { "1", "99999999999999999999999", "-1", "x", "9007199254740993", "7 " };
        char id[24], now[24];
        struct wire *a;

        (void) arg;
        begin();
        a = watch("a", NULL);
        expect(a, "ready", id);
        wire_close(a);
        publish("a", 1100, 10); /* more than are kept */
        a = watch("a", id);
        expect(a, "reset", now);
        CHECK(strtoull(now, NULL, 10) == strtoull(id, NULL, 10) + 1100);
        wire_close(a);
        for (size_t i = 0; i < ARRAY_LEN(strange); i++) {
                a = watch("a", strange[i]);
                expect(a, "reset", id);
                wire_close(a);
        }
        finish();
}

static void foreign(void *arg)
{
        struct wire *a, *b;
        char id[24];

        (void) arg;
        begin();
        a = watch("a", NULL);
        b = watch("b", NULL);
        expect(a, "ready", id);
        wire_close(a);
        expect(b, "ready", id);
        a = watch("a", id); /* an id of b's feed need not be one of a's; if it is, nothing of b comes */
        publish("a", 1, 100000);
        publish("b", 1, 5);
        expect(b, "fact", id);
        CHECK(!memmem(b->in.p, b->in.len, "xxxxxx", 6));
        wire_expect(a, "xxxxxx");
        wire_close(a);
        wire_close(b);
        finish();
}

static void slow(void *arg)
{
        struct wire *a, *b;
        char id[24], last[24];
        uint64_t n = 0;

        (void) arg;
        begin();
        a = watch("a", NULL);
        b = watch("a", NULL);
        expect(a, "ready", id);
        expect(b, "ready", last);
        /* One reads everything, the other nothing: it is ended, in bounded memory, and the first does not notice. */
        while (events_streams(control.events) == 2) {
                publish("a", 1, 32 << 10);
                expect(b, "fact", last);
                CHECK(n++ < 2000);
        }
        while (!memmem(a->in.p, a->in.len, "\r\n0\r\n\r\n", 7)) {
                char *p = buf_room(&a->in, 64 << 10);
                ssize_t got = stream_read(a->s, p, 64 << 10, 5000);

                CHECK(got > 0);
                buf_grew(&a->in, (size_t) got);
        }
        const char *at = buf_cstr(&a->in), *newest = NULL;
        uint64_t seen = strtoull(id, NULL, 10);
        while ((at = strstr(at, "id: "))) {
                newest = at += 4;
                CHECK(strtoull(at, NULL, 10) == ++seen);
        }
        CHECK(newest && seen < strtoull(last, NULL, 10));
        wire_close(a);
        /* It comes again: what it missed is too much by now. */
        (void) snprintf(id, sizeof id, "%llu", (unsigned long long) seen);
        publish("a", 20, 32 << 10);
        a = watch("a", id);
        expect(a, "reset", id);
        wire_close(a);
        wire_close(b);
        finish();
}

static void limits(void *arg)
{
        struct wire *w[64], *more;

        (void) arg;
        begin();
        for (size_t i = 0; i < ARRAY_LEN(w); i++)
                w[i] = watch("a", NULL);
        more = wire_open();
        wire_send(more, "GET /a HTTP/1.1\r\nHost: h\r\n\r\n");
        wire_expect(more, "HTTP/1.1 429");
        wire_expect(more, "Retry-After: 30");
        wire_close(more);
        more = watch("b", NULL);
        /* No coroutine waits for any of them: the one that runs is this test's. */
        CHECK(coro_count() == 1);
        publish("a", 1, 10);
        for (size_t i = 0; i < ARRAY_LEN(w); i++) {
                wire_expect(w[i], "event: fact\n");
                wire_close(w[i]);
        }
        wire_close(more);
        finish();
}

/* A box, its steps and its conversation, as the store and the clock tell of them. */
static void product(void *arg)
{
        char *account = NULL, id[24];
        struct identity who = { .agent = "agent-1" };

        (void) arg;
        begin();
        CHECK_INT(accounts_first(scratch->db, &account, NULL), 0);
        (void) snprintf(who.account, sizeof who.account, "%s", account);
        struct box_row row = { .id = (char *) "box1",
                               .account = account,
                               .name = (char *) "n",
                               .goal = (char *) "g",
                               .image = (char *) "host",
                               .size = (char *) "small",
                               .state = (char *) "starting",
                               .agent = (char *) "agent-1",
                               .services = (char *) "[]",
                               .repos = (char *) "[]",
                               .created_at = wall_ms(),
                               .used_at = wall_ms() };
        struct box box = { .id = "box1" };
        (void) snprintf(box.account, sizeof box.account, "%s", account);
        (void) map_put(control.boxes, str_of(box.id), &box);
        struct wire *w = watch(account, NULL);
        expect(w, "ready", id);
        CHECK_INT(boxes_insert(scratch->db, &row, NULL), 0);
        wire_expect(w, "data: {\"box\":\"box1\",\"status\":\"starting\"}\n");
        CHECK_INT(boxes_set_state(scratch->db, "box1", "running", NULL, NULL), 0);
        wire_expect(w, "data: {\"box\":\"box1\",\"status\":\"running\"}\n");
        agent_called(&control, &who);
        wire_expect(w, "event: agent.state\n");
        wire_expect(w, "data: {\"box\":\"box1\",\"state\":\"working\"}\n");
        agent_called(&control, &who); /* says nothing new */
        struct step s = { .box = "box1", .tool = "sandbox_exec", .command = "ls", .note = "<b>", .started_at = 5 };
        CHECK_INT(steps_begin(scratch->db, &s, NULL), 0);
        expect(w, "step.begin", id);
        s.ended_at = 9;
        CHECK_INT(steps_end(scratch->db, &s, NULL), 0);
        wire_expect(w, "event: step.end\n");
        wire_expect(w, "\"note\":\"<b>\",\"command\":\"ls\"");
        wire_expect(w, "\"durationMs\":4");
        CHECK_INT(agents_left(scratch->db, account, "agent-1"), 0);
        events_agent(control.events, account, "agent-1");
        wire_expect(w, "data: {\"box\":\"box1\",\"state\":\"left\"}\n");
        CHECK_INT(boxes_delete(scratch->db, "box1", NULL), 0);
        wire_expect(w, "data: {\"box\":\"box1\",\"status\":\"deleted\"}\n");
        wire_close(w);
        free(account);
        finish();
}

#define EVENTS_TEST(fn)                                    \
        static void test_##fn(void **state)                \
        {                                                  \
                void *s = NULL;                            \
                assert_int_equal(loop_up(state), 0);       \
                assert_int_equal(scratch_setup(&s), 0);    \
                scratch = s;                               \
                run(fn, NULL);                             \
                assert_int_equal(loop_down(state), 0);     \
                assert_int_equal(scratch_teardown(&s), 0); \
        }

EVENTS_TEST(resumes)
EVENTS_TEST(resets)
EVENTS_TEST(foreign)
EVENTS_TEST(slow)
EVENTS_TEST(limits)
EVENTS_TEST(product)

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_resumes), cmocka_unit_test(test_resets), cmocka_unit_test(test_foreign),
                cmocka_unit_test(test_slow),    cmocka_unit_test(test_limits), cmocka_unit_test(test_product),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
