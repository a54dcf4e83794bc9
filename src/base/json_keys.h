/*
 * json_keys: the keys of the objects that are open while a JSON text is scanned, to find duplicates in linear
 * time; internal to json_scan.c.
 */
#pragma once

#include "base/buf.h"

struct json_key {
        uint64_t hash;
        uint32_t at, n; /* in the text, or in decoded */
        bool decoded;
};

/* One hash set for all open objects: the keys of an inner object lie above those of the objects around it. */
struct json_keys {
        const char *text;
        struct json_key *v;
        size_t len, cap;
        uint32_t *slots; /* index + 1 of a key, 0 when free */
        size_t n_slots;
        struct buf decoded; /* keys that were written with escapes */
};

void json_keys_init(struct json_keys *k, struct str text);
void json_keys_done(struct json_keys *k);

/* Adds the key raw (a piece of the text that is a valid string without its quotes) to the object whose first key
 * is number first: 0, -EEXIST for a duplicate, -EILSEQ when it holds a NUL, -ENOMEM. */
int json_keys_add(struct json_keys *k, struct str raw, bool escaped, size_t first);

/* Forgets the keys of the innermost object. */
void json_keys_drop(struct json_keys *k, size_t first);
