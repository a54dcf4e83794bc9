/*
 * map: a hash map from byte-string keys to pointers. Keys are copied, values are the caller's business.
 * The hash is seeded per process. Removing during map_each is allowed for the current key only.
 */
#pragma once

#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>

struct map;

struct map *map_new(void);
void map_free(struct map *m); /* values are not touched */
void map_freep(struct map **m);
void *map_get(const struct map *m, struct str key);
void *map_put(struct map *m, struct str key, void *value); /* returns the value that was there, or NULL */
void *map_del(struct map *m, struct str key);              /* returns the value that was there, or NULL */
size_t map_len(const struct map *m);
int map_each(struct map *m, int (*fn)(struct str key, void *value, void *arg), void *arg);
