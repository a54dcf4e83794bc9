#include "adapter/reminder.h"
#include "adapter/rawjson.h"
#include "base/json.h"
#include "base/mem.h"

#include <stdlib.h>

#define KEPT_MAX 32
#define TEXT_MAX 4096

struct reminder {
        struct list node;
        char *box, *dest;
};

void reminders_init(struct reminders *r)
{
        list_init(&r->all);
        r->n = 0;
}

static void drop(struct reminders *r, struct reminder *m)
{
        list_remove(&m->node);
        r->n--;
        free(m->box);
        free(m->dest);
        free(m);
}

void reminders_set(struct reminders *r, const char *box, const char *dest, bool failed)
{
        struct reminder *m;

        list_for_each_safe (it, &r->all) {
                m = list_entry(it, struct reminder, node);
                if (strcmp(m->box, box) == 0 && strcmp(m->dest, dest) == 0)
                        drop(r, m);
        }
        if (!failed)
                return;
        if (r->n == KEPT_MAX)
                drop(r, list_entry(r->all.next, struct reminder, node));
        m = xcalloc(1, sizeof *m);
        m->box = xstrdup(box);
        m->dest = xstrdup(dest);
        list_append(&r->all, &m->node);
        r->n++;
}

static size_t take(struct reminders *r, const char *box, struct buf *names)
{
        size_t n = 0;

        list_for_each_safe (it, &r->all) {
                struct reminder *m = list_entry(it, struct reminder, node);

                if (strcmp(m->box, box) != 0)
                        continue;
                (void) buf_addf(names, n++ ? ", %.200s" : "%.200s", m->dest);
                drop(r, m);
        }
        return n;
}

static int add_block(struct buf *out, struct str names, bool first)
{
        _cleanup_buf_ struct buf text = BUF_MAX(2 * TEXT_MAX);
        struct jw w;
        int r = buf_addf(&text,
                         "Reminder: the last sandbox_sync to this box failed, so what ran used the OLD files there "
                         "(NOT SYNCED: %.*s). Sync again before you trust the result.",
                         (int) names.n, names.p);

        if (r == 0 && !first)
                r = buf_addc(out, ',');
        if (r < 0)
                return r;
        jw_init(&w, out);
        jw_obj(&w);
        jw_kstr(&w, "type", "text");
        jw_kstrn(&w, "text", buf_str(&text));
        return jw_end_all(&w);
}

bool reminders_add(struct reminders *r, const char *box, struct str result, struct buf *out)
{
        _cleanup_buf_ struct buf names = BUF_MAX(TEXT_MAX);
        struct str content, inside;
        int e;

        if (!box || list_empty(&r->all) || !raw_get(result, "content", &content) || !content.n || content.p[0] != '[')
                return false;
        if (!take(r, box, &names))
                return false;
        inside = raw_array_inside(content);
        e = buf_add(out, result.p, (size_t) (content.p - result.p));
        if (e == 0)
                e = buf_addc(out, '[');
        if (e == 0)
                e = buf_addstr(out, inside);
        if (e == 0)
                e = add_block(out, buf_str(&names), inside.n == 0);
        if (e == 0)
                e = buf_addc(out, ']');
        if (e == 0)
                e = buf_add(out, content.p + content.n, (size_t) (result.p + result.n - content.p - content.n));
        return e == 0;
}
