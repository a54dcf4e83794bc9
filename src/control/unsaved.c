/* What in a box's /work is saved nowhere else: asked in the box itself, before its processes end. */
#include "control/box_impl.h"
#include "control/guest_client.h"

#include "base/clock.h"
#include "base/ids.h"
#include "base/mem.h"

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

struct json *coroutine_fn box_unsaved(struct control *c, const struct box_row *row)
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
