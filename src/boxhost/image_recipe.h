/*
 * image_recipe: which packages an image is made of. The recipes of the product lie as files in images/ and are compiled
 * in (image_files); an operator's own list has the same form: one package a line, `#` begins a comment, `%disk N` says
 * how many MiB making it needs.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

struct image_recipe {
        struct buf packages; /* "a,b,c", owned */
        unsigned count;
        uint64_t disk_mib;
};

void image_recipe_done(struct image_recipe *r);
/* -EINVAL with the line that is wrong. */
int image_recipe_parse(struct str text, struct image_recipe *ret, struct err *e);
/* A compiled-in file of an image ("debian", "bookworm"), or NULL. */
const char *image_recipe_file(const char *image, const char *name);
/* True when the product knows how to make an image of that name. */
bool image_recipe_known(const char *image);
/* The images and releases there are, for messages: "debian", "bookworm, trixie". */
void image_recipe_names(struct buf *b);
void image_recipe_releases(const char *image, struct buf *b);
