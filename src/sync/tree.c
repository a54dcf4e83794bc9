#include "sync/tree.h"
#include "base/mem.h"

#include <stdlib.h>
#include <unistd.h>

void tree_init(struct tree *t)
{
        *t = (struct tree){ .root_fd = -1, .empty_dirs = BUF_MAX((size_t) 64 << 20) };
}

void tree_done(struct tree *t)
{
        for (size_t i = 0; i < t->arena_len; i++)
                free(t->arena[i]);
        free(t->arena);
        free(t->v);
        free(t->root);
        buf_done(&t->empty_dirs);
        closep(&t->root_fd);
        tree_init(t);
}

void tree_own(struct tree *t, char *bytes)
{
        t->arena = xrealloc(t->arena, (t->arena_len + 1) * sizeof *t->arena);
        t->arena[t->arena_len++] = bytes;
}

#define CHUNK ((size_t) 64 << 10)

const char *tree_strn(struct tree *t, const char *p, size_t n)
{
        if (n + 1 > t->chunk_left) {
                t->chunk_left = max_size(CHUNK, n + 1);
                t->chunk = xmalloc(t->chunk_left);
                tree_own(t, t->chunk);
        }
        char *copy = t->chunk;
        memcpy(copy, p, n);
        copy[n] = '\0';
        t->chunk += n + 1;
        t->chunk_left -= n + 1;
        return copy;
}

struct entry *tree_add(struct tree *t, const char *path, size_t len)
{
        if (t->n == t->cap) {
                t->cap = t->cap ? t->cap * 2 : 256;
                t->v = xrealloc(t->v, t->cap * sizeof *t->v);
        }
        struct entry *e = &t->v[t->n++];
        *e = (struct entry){ .path = path, .path_len = (uint16_t) len };
        return e;
}

int path_cmp(const char *a, size_t an, const char *b, size_t bn)
{
        int c = memcmp(a, b, min_size(an, bn));

        return c ? c : an < bn ? -1 : an > bn;
}

static int entry_cmp(const void *a, const void *b)
{
        const struct entry *x = a, *y = b;

        return path_cmp(x->path, x->path_len, y->path, y->path_len);
}

/* git lists tracked and untracked files each sorted: merging the two runs is far cheaper than sorting entries of 100
 * bytes. */
static bool merge_runs(struct tree *t)
{
        size_t cut = 1, i = 0, j;

        while (cut < t->n && entry_cmp(&t->v[cut - 1], &t->v[cut]) <= 0)
                cut++;
        for (j = cut + 1; j < t->n; j++)
                if (entry_cmp(&t->v[j - 1], &t->v[j]) > 0)
                        return false;
        if (cut >= t->n)
                return true;
        struct entry *out = xmalloc(t->n * sizeof *out);
        size_t n = 0;
        for (j = cut; i < cut || j < t->n;)
                out[n++] = j >= t->n || (i < cut && entry_cmp(&t->v[i], &t->v[j]) <= 0) ? t->v[i++] : t->v[j++];
        free(t->v);
        t->v = out;
        t->cap = t->n;
        return true;
}

void tree_sort(struct tree *t)
{
        size_t n = 0;

        if (t->n < 2)
                return;
        if (!merge_runs(t))
                qsort(t->v, t->n, sizeof *t->v, entry_cmp);
        for (size_t i = 0; i < t->n; i++)
                if (n == 0 || entry_cmp(&t->v[n - 1], &t->v[i]) != 0)
                        t->v[n++] = t->v[i];
        t->n = n;
}

const struct entry *tree_find(const struct tree *t, const char *path, size_t len)
{
        size_t lo = 0, hi = t->n;

        while (lo < hi) {
                size_t mid = lo + (hi - lo) / 2;
                int c = path_cmp(t->v[mid].path, t->v[mid].path_len, path, len);

                if (c == 0)
                        return &t->v[mid];
                if (c < 0)
                        lo = mid + 1;
                else
                        hi = mid;
        }
        return NULL;
}

static bool blocks(const struct entry *e)
{
        return e && ((e->state == ENTRY_OK && e->kind == GUEST_KIND_LINK) || e->state == ENTRY_DIR || e->gitlink);
}

bool tree_blocked(const struct tree *t, const char *path, size_t len)
{
        for (size_t i = 1; i < len; i++)
                if (path[i] == '/' && blocks(tree_find(t, path, i)))
                        return true;
        return false;
}

void tree_drop_behind_links(struct tree *t)
{
        bool any = false;

        for (size_t i = 0; i < t->n && !any; i++)
                any = blocks(&t->v[i]);
        for (size_t i = 0; any && i < t->n; i++)
                if (t->v[i].state == ENTRY_OK && tree_blocked(t, t->v[i].path, t->v[i].path_len))
                        t->v[i].state = ENTRY_GONE;
}
