/*
 * rawjson: finds members in the text of a JSON object without rebuilding it, so that what is passed on is passed on
 * byte for byte. The text must have been accepted by json_parse. Pure; nothing here suspends.
 */
#pragma once

#include "base/buf.h"
#include "base/str.h"

/* The text of a member's value; false when obj is no object or lacks it (null counts as a value). */
bool raw_get(struct str obj, const char *key, struct str *ret);

struct raw_it {
        struct str rest;
};
/* for (struct raw_it it = raw_begin(obj); raw_next(&it, &key, &value);) key is the text between the quotes. */
struct raw_it raw_begin(struct str obj);
bool raw_next(struct raw_it *it, struct str *key, struct str *value);
bool raw_key_is(struct str key, const char *name); /* escapes in key are understood */

struct str raw_trim(struct str s);
/* Appends s as one line: line breaks between tokens become spaces (inside strings JSON has none). */
int raw_add_line(struct buf *out, struct str s);
/* The items of an array, without the brackets. */
struct str raw_array_inside(struct str array);
