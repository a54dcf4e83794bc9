#include "boxd/put_ahead.h"

#include "base/list.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WRITERS 2
#define UNDER_WAY 128 /* files at once: with their content at most 8 MiB */

/* A folder that consecutive files share. Counted on the caller's thread only. */
struct place {
        int fd;
        unsigned refs, writer;
        size_t len;
        char *path;
};

struct job {
        struct ahead_file file;
        struct place *place;
        struct list queued; /* of its writer, until taken */
        bool done;          /* under the lock */
};

struct writer {
        struct ahead *owner;
        pthread_t thread;
        struct list queue;
        pthread_cond_t work;
};

struct ahead {
        bool compare;
        void (*ended)(struct ahead_file *f, void *arg);
        void *arg;
        pthread_mutex_t lock;
        pthread_cond_t progress;
        bool quit;
        struct writer writer[WRITERS];
        size_t writers;
        unsigned turn;
        struct place *place; /* the last one used */
        struct job *ring[UNDER_WAY];
        size_t first, count;
};

/* ---- a writing thread ---- */

static void write_file(struct ahead *a, struct job *j)
{
        struct ahead_file *f = &j->file;

        f->r = sink_begin(&f->sink, j->place->fd, f->name, f->size, f->mode, a->compare, true);
        if (f->r < 0)
                return;
        if (f->size)
                f->r = sink_data(&f->sink, f->data, f->size);
        if (f->r < 0)
                sink_abort(&f->sink);
        else
                f->r = sink_end(&f->sink);
}

static void *writer_main(void *arg)
{
        struct writer *w = arg;
        struct ahead *a = w->owner;

        (void) pthread_mutex_lock(&a->lock);
        for (;;) {
                while (list_empty(&w->queue) && !a->quit)
                        (void) pthread_cond_wait(&w->work, &a->lock);
                if (list_empty(&w->queue))
                        break;
                struct job *j = list_entry(w->queue.next, struct job, queued);
                list_remove(&j->queued);
                (void) pthread_mutex_unlock(&a->lock);
                write_file(a, j);
                (void) pthread_mutex_lock(&a->lock);
                j->done = true;
                if (a->ring[a->first] == j) /* the one that may be waited for */
                        (void) pthread_cond_signal(&a->progress);
        }
        (void) pthread_mutex_unlock(&a->lock);
        return NULL;
}

/* ---- the caller ---- */

static void place_unref(struct place *p)
{
        if (!p || --p->refs > 0)
                return;
        close(p->fd);
        free(p->path);
        free(p);
}

/* Files of one folder go to one writer: two would only wait for each other in the kernel. */
static struct place *place_for(struct ahead *a, int dir, const char *path, size_t n)
{
        struct place *p = a->place;

        if (p && p->len == n && memcmp(p->path, path, n) == 0)
                return p;
        int fd = fcntl(dir, F_DUPFD_CLOEXEC, 3);
        if (fd < 0)
                return NULL;
        place_unref(p);
        a->place = p = xcalloc(1, sizeof(*p));
        *p = (struct place){
                .fd = fd, .refs = 1, .writer = a->turn++ % (unsigned) a->writers, .len = n, .path = xstrndup(path, n)
        };
        return p;
}

/* Waits for the oldest and tells its outcome. */
static void end_oldest(struct ahead *a)
{
        struct job *j = a->ring[a->first];

        (void) pthread_mutex_lock(&a->lock);
        while (!j->done)
                (void) pthread_cond_wait(&a->progress, &a->lock);
        a->ring[a->first] = NULL;
        a->first = (a->first + 1) % UNDER_WAY;
        a->count--;
        (void) pthread_mutex_unlock(&a->lock);
        a->ended(&j->file, a->arg);
        place_unref(j->place);
        free(j->file.path);
        free(j);
}

bool ahead_take(struct ahead *a, int dir, const char *path, size_t n, unsigned mode, const char *data, uint64_t size)
{
        size_t dir_len;
        const char *name = path_split(path, n, &dir_len);

        if (!a || size > AHEAD_SIZE_MAX)
                return false;
        struct place *place = place_for(a, dir, path, dir_len);
        if (!place)
                return false;
        if (a->count == UNDER_WAY)
                end_oldest(a); /* after which dir may be closed */
        struct job *j = xcalloc(1, sizeof(*j));
        char *copy = xmalloc(n + 1 + (size_t) size);
        memcpy(copy, path, n);
        copy[n] = '\0';
        memcpy(copy + n + 1, data, (size_t) size);
        j->file = (struct ahead_file){ .path = copy,
                                       .path_len = n,
                                       .name = copy + (name - path),
                                       .data = copy + n + 1,
                                       .size = (size_t) size,
                                       .mode = mode };
        sink_init(&j->file.sink);
        j->place = place;
        place->refs++;
        struct writer *w = &a->writer[place->writer];
        (void) pthread_mutex_lock(&a->lock);
        a->ring[(a->first + a->count++) % UNDER_WAY] = j;
        list_append(&w->queue, &j->queued);
        (void) pthread_cond_signal(&w->work);
        (void) pthread_mutex_unlock(&a->lock);
        return true;
}

static bool begins(const char *p, size_t n, const char *with, size_t with_n)
{
        return n >= with_n && memcmp(p, with, with_n) == 0 && (n == with_n || p[with_n] == '/');
}

static bool touches(const struct ahead *a, const char *path, size_t n)
{
        for (size_t i = 0; i < a->count; i++) {
                const struct ahead_file *f = &a->ring[(a->first + i) % UNDER_WAY]->file;

                if (begins(f->path, f->path_len, path, n) || begins(path, n, f->path, f->path_len))
                        return true;
        }
        return false;
}

void ahead_settle(struct ahead *a, const char *path, size_t n)
{
        if (!a || a->count == 0 || (path && !touches(a, path, n)))
                return;
        while (a->count)
                end_oldest(a);
}

static size_t processors(void)
{
        cpu_set_t set;

        return sched_getaffinity(0, sizeof(set), &set) == 0 ? (size_t) CPU_COUNT(&set) : 1;
}

struct ahead *ahead_new(bool compare, void (*ended)(struct ahead_file *f, void *arg), void *arg)
{
        struct ahead *a;

        if (processors() < 2)
                return NULL;
        a = xcalloc(1, sizeof(*a));
        a->compare = compare;
        a->ended = ended;
        a->arg = arg;
        (void) pthread_mutex_init(&a->lock, NULL);
        (void) pthread_cond_init(&a->progress, NULL);
        for (; a->writers < WRITERS; a->writers++) {
                struct writer *w = &a->writer[a->writers];

                w->owner = a;
                list_init(&w->queue);
                (void) pthread_cond_init(&w->work, NULL);
                if (pthread_create(&w->thread, NULL, writer_main, w) != 0)
                        break; /* at the box's process limit: with fewer, or none */
        }
        if (a->writers > 0)
                return a;
        free(a);
        return NULL;
}

void ahead_free(struct ahead *a)
{
        if (!a)
                return;
        ahead_settle(a, NULL, 0);
        (void) pthread_mutex_lock(&a->lock);
        a->quit = true;
        for (size_t i = 0; i < a->writers; i++)
                (void) pthread_cond_signal(&a->writer[i].work);
        (void) pthread_mutex_unlock(&a->lock);
        for (size_t i = 0; i < a->writers; i++)
                (void) pthread_join(a->writer[i].thread, NULL);
        place_unref(a->place);
        free(a);
}
