/*
 * walk: everything beneath a folder with its stat data, looked up by path. The diff operation makes it while the plan
 * is still on its way, so that both sides read their trees at the same time; what the plan does not name is left over
 * as extras.
 *
 * Owns its memory (about 120 bytes a name), bounded by WALK_MAX names; `.git` folders and node_modules are not walked.
 * Blocks on the disk.
 */
#pragma once

#include "base/buf.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#define WALK_MAX 300000

struct walk_item {
        uint64_t hash;
        uint32_t path; /* offset into paths */
        uint32_t path_len;
        mode_t mode;
        bool named; /* the plan has it */
        dev_t dev;
        ino_t ino;
        off_t size;
        struct timespec mtim, ctim;
};

struct walk {
        struct walk_item *items;
        size_t n, cap;
        struct buf paths;
        uint32_t *table; /* hash -> 1 + index, open addressing */
        size_t mask;
        bool partial; /* there is more than was looked at */
};

void walk_run(struct walk *w, int dir); /* files and links, no folders */
/* The item of that path, or NULL. */
struct walk_item *walk_find(const struct walk *w, const char *path, size_t n);
/* The fields that the digest cache goes by. */
void walk_stat(const struct walk_item *i, struct stat *ret);
void walk_done(struct walk *w);
