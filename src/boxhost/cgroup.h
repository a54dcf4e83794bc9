/*
 * cgroup: limits, kill, freeze and counters of boxes, on cgroup v2, v1, or the mixed layout: each controller is used in
 * the hierarchy where it is found. Every box has a folder <base>/psbx-<instance>/<id> in each used hierarchy. struct
 * cgroups owns the descriptors of the psbx-<instance> folders. Nothing here blocks but cg_remove, which waits a bounded
 * time for the kernel to let go.
 */
#pragma once

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum cg_controller { CG_CPU, CG_CPUACCT, CG_MEMORY, CG_PIDS, CG_FREEZER, CG_CONTROLLERS };

#define CG_HIERARCHIES_MAX 8
#define CG_PATH_MAX 512

struct cg_hierarchy {
        bool v2;
        unsigned controllers;    /* bit per enum cg_controller; on v2 the ones that may be enabled */
        char mount[CG_PATH_MAX]; /* where it is mounted */
        char own[CG_PATH_MAX];   /* the cgroup of this process, "/" for the top */
        int fd;                  /* the instance's folder, -1 before cgroups_open */
};

struct cg_layout {
        struct cg_hierarchy h[CG_HIERARCHIES_MAX];
        size_t n;
};

/*
 * Reads the layout from the texts of /proc/self/mountinfo and /proc/self/cgroup; v2_controllers is the text of
 * cgroup.controllers at the v2 mount ("" without v2). Hierarchies without a controller of interest are left out; v2
 * never is.
 */
int cg_layout_parse(const char *mountinfo, const char *self, const char *v2_controllers, struct cg_layout *ret,
                    struct err *e);

struct cgroups {
        struct cg_layout layout;
        char folder[32];         /* psbx-<instance> */
        int has[CG_CONTROLLERS]; /* index of the hierarchy that serves the controller, -1 when none */
        int v2;                  /* index of the v2 hierarchy, -1 when none */
        bool kill;               /* v2 has cgroup.kill */
};

struct cg_limits {
        double cpus;
        uint64_t memory, pids;
};

struct cg_stats {
        uint64_t cpu_usec, memory_used, memory_limit, pids_used, pids_limit, oom_kills;
};

/* What a new process needs to be born into the box's cgroups: v2 by clone3, v1 by writing "0" into the tasks files. */
struct cg_join {
        int v2_dir;
        int tasks[CG_HIERARCHIES_MAX];
        size_t n;
};

/* Finds the layout and makes the instance's folders; a missing controller is no error. */
int cgroups_open(struct cgroups *c, const char *instance, struct err *e);
void cgroups_close(struct cgroups *c);
/* Removes the instance's (empty) folders. */
void cgroups_destroy(struct cgroups *c);

int cg_make(struct cgroups *c, const char *id, const struct cg_limits *limits, struct cg_join *ret, struct err *e);
void cg_join_close(struct cg_join *j);
/* SIGKILL to every process of the box; repeat until cg_empty. */
int cg_kill(struct cgroups *c, const char *id);
bool cg_empty(struct cgroups *c, const char *id);
/* Removes the box's folders (and those made inside the box); -EBUSY when processes stay. */
int cg_remove(struct cgroups *c, const char *id);
int cg_freeze(struct cgroups *c, const char *id, bool frozen, struct err *e);
bool cg_is_frozen(struct cgroups *c, const char *id);
int cg_read_stats(struct cgroups *c, const char *id, struct cg_stats *ret);
/* The file that counts the kills of a box, with "*" for its id; readable by everyone. Allocated, NULL when there is
 * none. */
char *cg_oom_file(const struct cgroups *c);
/* Calls fn once or more for each box folder that exists. */
void cg_each(struct cgroups *c, void (*fn)(const char *id, void *arg), void *arg);
