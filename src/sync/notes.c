#include "base/file.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "sync/job.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define NAMES_MAX 8
#define LFS_POINTER_MAX 1024

static void add_path(struct buf *list, const struct entry *e)
{
        if (list->max == 0)
                list->max = (size_t) 1 << 20;
        (void) buf_add(list, e->path, (size_t) e->path_len + 1);
}

static const char *base_name(const char *path)
{
        const char *slash = strrchr(path, '/');

        return slash ? slash + 1 : path;
}

static bool ends_with(const char *s, const char *end)
{
        return str_ends(str_of(s), str_of(end));
}

static void note_list(struct sync_job *j, const struct buf *list, const char *one, const char *what)
{
        size_t n = list_len(list);
        _cleanup_free_ char *names = n ? list_text(list, NAMES_MAX) : NULL;

        if (n)
                job_note(j, "%zu %s%s %s: %s", n, one, n == 1 ? "" : "s", what, names);
}

/* What could not be sent, by kind, in one line each. */
static void note_left_out(struct sync_job *j)
{
        struct buf special = { 0 }, unreadable = { 0 }, nested = { 0 }, modules = { 0 };

        for (size_t i = 0; i < j->tree.n; i++) {
                const struct entry *e = &j->tree.v[i];

                if (e->state == ENTRY_SPECIAL)
                        add_path(&special, e);
                else if (e->state == ENTRY_UNREADABLE)
                        add_path(&unreadable, e);
                else if (e->state == ENTRY_DIR && e->gitlink)
                        add_path(&modules, e);
                else if (e->state == ENTRY_DIR && e->nested)
                        add_path(&nested, e);
        }
        note_list(j, &special, "entry", "not sent, being no file, folder or link (FIFO, socket, device)");
        note_list(j, &unreadable, "file", "not sent, because it could not be read here");
        note_list(j, &modules, "submodule", "not sent; sync its folder with a call of its own");
        note_list(j, &nested, "nested repository", "not sent; sync its folder with a call of its own");
        buf_done(&special);
        buf_done(&unreadable);
        buf_done(&modules);
        buf_done(&nested);
}

static bool is_lock_file(const char *base)
{
        return strcmp(base, "package-lock.json") == 0 || strcmp(base, "pnpm-lock.yaml") == 0 ||
               strcmp(base, "yarn.lock") == 0;
}

static bool restarts_dev_server(const char *base)
{
        return strcmp(base, "package.json") == 0 || strncmp(base, "vite.config.", 12) == 0 ||
               strncmp(base, "tsconfig", 8) == 0 || strncmp(base, ".env", 4) == 0;
}

static void note_sent(struct sync_job *j)
{
        struct buf dev = { 0 }, locks = { 0 };

        for (size_t i = 0; i < j->plan.need_n; i++) {
                const struct entry *e = &j->tree.v[j->plan.need[i]];

                if (restarts_dev_server(base_name(e->path)))
                        add_path(&dev, e);
                if (is_lock_file(base_name(e->path)))
                        add_path(&locks, e);
        }
        if ((j->plan.exists || j->plan.unknown) && dev.len) {
                _cleanup_free_ char *names = list_text(&dev, NAMES_MAX);
                job_note(j,
                         "A dev server that runs in the box may restart or need a restart, because these changed: %s",
                         names);
        }
        if (locks.len) {
                _cleanup_free_ char *names = list_text(&locks, NAMES_MAX);
                job_note(j,
                         "%s %s: node_modules in the box may be missing or no longer match it; install dependencies "
                         "before you run it.",
                         names, j->plan.exists ? "changed" : "came along");
        }
        buf_done(&dev);
        buf_done(&locks);
}

static void note_scripts(struct sync_job *j)
{
        struct buf list = { 0 };

        for (size_t i = 0; i < j->tree.n; i++) {
                const struct entry *e = &j->tree.v[i];
                const char *base = base_name(e->path);

                if (e->state == ENTRY_OK && e->kind == GUEST_KIND_FILE &&
                    (strcmp(base, "gradlew") == 0 || strcmp(base, "mvnw") == 0 || ends_with(base, ".sh")))
                        add_path(&list, e);
        }
        note_list(
                j, &list, "script",
                "without the executable bit here and so in the box (run it with its interpreter, or chmod +x it here)");
        buf_done(&list);
}

/* Build settings that people keep out of git on purpose, and then miss. */
static bool is_build_setting(const char *path)
{
        static const char *const names[] = { "local.properties",
                                             "google-services.json",
                                             "GoogleService-Info.plist",
                                             "key.properties",
                                             "secrets.json",
                                             "config.local.json",
                                             ".npmrc" };
        const char *base = base_name(path);

        if (strncmp(base, ".env", 4) == 0)
                return true;
        for (size_t i = 0; i < ARRAY_LEN(names); i++)
                if (strcmp(base, names[i]) == 0)
                        return true;
        return false;
}

static void note_settings(struct sync_job *j)
{
        _cleanup_buf_ struct buf list = BUF_MAX((size_t) 1 << 20);

        for (size_t at = 0; at < j->ignored.len; at += strlen(j->ignored.p + at) + 1)
                if (is_build_setting(j->ignored.p + at))
                        (void) buf_add(&list, j->ignored.p + at, strlen(j->ignored.p + at) + 1);
        if (list.len) {
                _cleanup_free_ char *names = list_text(&list, NAMES_MAX);
                job_note(j,
                         "Ignored by git and therefore not sent, though a build may need them: %s. Sync such a file by "
                         "itself if so.",
                         names);
        }
}

static bool is_lfs_pointer(const struct sync_job *j, const struct entry *e)
{
        static const char head[] = "version https://git-lfs.github.com/spec/";
        char text[sizeof head];

        if (e->key.size < 100 || e->key.size > LFS_POINTER_MAX)
                return false;
        _cleanup_close_ int fd = openat(j->tree.root_fd, e->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
        return fd >= 0 && read(fd, text, sizeof head - 1) == (ssize_t) sizeof head - 1 &&
               memcmp(text, head, sizeof head - 1) == 0;
}

static bool uses_lfs(const struct sync_job *j)
{
        _cleanup_buf_ struct buf text = BUF_MAX(65536);

        return tree_find(&j->tree, ".gitattributes", 14) && file_read(j->tree.root_fd, ".gitattributes", &text) == 0 &&
               str_has(buf_str(&text), STR("filter=lfs"));
}

static void note_lfs(struct sync_job *j)
{
        struct buf list = { 0 };

        bool lfs = uses_lfs(j);

        for (size_t i = 0; lfs && i < j->plan.need_n; i++)
                if (is_lfs_pointer(j, &j->tree.v[j->plan.need[i]]))
                        add_path(&list, &j->tree.v[j->plan.need[i]]);
        note_list(j, &list, "Git LFS pointer",
                  "sent as the pointer it is here, not the content (git lfs pull fetches it)");
        buf_done(&list);
}

void job_notes(struct sync_job *j)
{
        note_left_out(j);
        note_list(j, &j->sent.gone, "file", "vanished while it was being sent");
        note_list(j, &j->sent.changing, "file", "changed while it was being read; sync again when it is quiet");
        note_list(j, &j->sent.refused, "entry", "refused by the box");
        note_sent(j);
        note_scripts(j);
        note_settings(j);
        note_lfs(j);
        if (j->plan.unknown)
                job_note(j, "This server cannot compare, so everything was sent.");
        else if (j->from_git && !j->plan.exists && !j->dry_run)
                job_note(j, "/work/%s is new and has no .git: git commands do not work there.", j->dest.path);
}

/* Over maxMB: where the bytes are, by folder (two levels), largest first. */
struct folder {
        const char *path;
        size_t len;
        uint64_t bytes, files;
};

static int by_bytes(const void *a, const void *b)
{
        const struct folder *x = a, *y = b;

        return x->bytes < y->bytes ? 1 : x->bytes > y->bytes ? -1 : 0;
}

static size_t folder_len(const struct entry *e)
{
        const char *first = strchr(e->path, '/'), *second = first ? strchr(first + 1, '/') : NULL;

        return second ? (size_t) (second - e->path) : first ? (size_t) (first - e->path) : 0;
}

static void add_folder(struct buf *out, const struct folder *f)
{
        _cleanup_buf_ struct buf name = BUF_MAX(GUEST_PATH_MAX * 3);

        (void) utf8_repair(&name, f->len ? str_n(f->path, f->len) : STR("(top level)"));
        (void) buf_addf(out, "\n  %8.1f MB  %s (%llu files)", (double) f->bytes / 1048576.0, buf_cstr(&name),
                        (unsigned long long) f->files);
}

void job_too_big(const struct sync_job *j, struct buf *out)
{
        _cleanup_free_ struct folder *v = xcalloc(j->plan.need_n + 1, sizeof *v);
        size_t n = 0;

        /* need is sorted by path, so the files of one folder follow each other but for files beside deeper folders */
        for (size_t i = 0; i < j->plan.need_n; i++) {
                const struct entry *e = &j->tree.v[j->plan.need[i]];
                size_t len = folder_len(e), k = n;

                while (k > 0 && n - k < 16 && !(v[k - 1].len == len && memcmp(v[k - 1].path, e->path, len) == 0))
                        k--;
                if (k == 0 || n - k >= 16) {
                        v[n] = (struct folder){ .path = e->path, .len = len };
                        k = ++n;
                }
                v[k - 1].bytes += e->key.size;
                v[k - 1].files++;
        }
        qsort(v, n, sizeof *v, by_bytes);
        (void) buf_addf(out,
                        "NOT SYNCED: /work/%s still has its old files. %.1f MB in %zu files would be sent, more than "
                        "maxMB (%lld). "
                        "Nothing was sent. The largest folders:",
                        j->dest.path, (double) j->need_bytes / 1048576.0, j->plan.need_n, (long long) j->max_mb);
        for (size_t i = 0; i < n && i < 10; i++)
                add_folder(out, &v[i]);
        (void) buf_adds(out, "\nLeave folders out with `exclude`, let git ignore them, or raise `maxMB`.");
}
