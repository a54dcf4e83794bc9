/*
 * box: making and ending one box. box_create answers when boxd listens, or undoes everything; box_destroy ends when
 * nothing of the box is left. Both block: a create for some milliseconds (bounded at ten seconds when boxd does not
 * start), a destroy for the time the kernel needs.
 */
#pragma once

#include "boxhost/host.h"

#include <stdint.h>

#define BOX_ENV_MAX 64

struct box_request {
        const char *id, *image, *hostname;
        bool restore; /* from its archive: image NULL means the one it had, and the size is the recorded one */
        struct box_size size;
        const char *env[BOX_ENV_MAX + 1]; /* "NAME=value", borrowed */
        size_t env_count;
};

struct box_timings { /* microseconds */
        int64_t disk, cgroup, clone, net, idmap, mounts, record, ready, total;
        bool renewed; /* restored over another image: only /work is what it was */
};

bool box_id_ok(const char *id);
bool box_hostname_ok(const char *name);
bool box_env_ok(const char *assignment);
/* Puts each size within what this machine and a box can bear. */
void box_size_clamp(struct box_size *s);

/*
 * With q->restore the box comes back from its archive: -ENOENT without one, -EBUSY while its disk is in use. Its folder
 * moves back among the boxes as the last step, so a boxhost that dies before leaves the archive and what it ends on the
 * next start.
 */
int box_create(struct host *h, const struct box_request *q, struct box **ret, struct box_timings *t, struct err *e);
/*
 * Removes all traces of an id, whether or not a struct box exists for it; the box, if any, is forgotten. *ret_rest is
 * what then is left for a closer (it may be nothing); with ret_rest NULL all is done here.
 */
int box_destroy(struct host *h, const char *id, struct box_rest *ret_rest, struct err *e);
/*
 * Ends everything of a box but its disk, which moves to the archive in one step; 0 for a box that is archived already.
 * When it fails after its processes ended, the box is a dead one with its files.
 */
int box_archive(struct host *h, const char *id, struct box_rest *ret_rest, struct err *e);
int box_freeze(struct host *h, struct box *b, bool frozen, struct err *e);
/* After its PID 1 ended: the box becomes dead, and how is told ("exited 3", "killed 9", "unknown"). */
void box_ended(struct host *h, struct box *b, char how[32]);
/* Bytes of the box's disk; zero when it has none mounted. */
void box_disk_usage(const struct box *b, uint64_t *used, uint64_t *limit);
