/*
 * features: what this machine can do for boxes, and what the lack of something costs. Owns nothing; blocks only in
 * features_alone (it runs helpers to find out).
 */
#pragma once

#include "base/json.h"
#include "boxhost/cgroup.h"

#include <stdbool.h>

#define MISSING_MAX 16

struct missing {
        const char *what, *cost;
        char why[160];
};

struct features {
        bool root, idmap, cpu, memory, pids, freeze, kill, net, dns, disk, seccomp;
        const char *layout; /* "v2", "v1", "mixed" or "none" */
        struct missing missing[MISSING_MAX];
        size_t n;
};

void features_lack(struct features *f, const char *what, const char *cost, const char *why);
/* Takes over what the cgroup hierarchies offer. */
void features_cgroups(struct features *f, const struct cgroups *c);
/* Can the kernel mount with shifted ids, and load a filter? */
void features_kernel(struct features *f);
/* "features":{…},"missing":[…] into an open object. */
void features_print(const struct features *f, struct jw *w);
/* Probes all of it without a state folder and leaves nothing behind. */
void features_alone(struct features *f);
