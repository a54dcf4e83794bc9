/*
 * template: pages from files, with data. A small part of Mustache:
 *
 *   {{name}}            the value, escaped          {{#name}}…{{/name}}   for each item of an array, or when it is not
 * empty, false or absent
 *   {{_key}}            a text in the page's language, in which {name} stands for a value       {{^name}}…{{/name}}
 * when it is
 *   {{>file}}           another template            {{@file}}   the address of an asset
 *
 * There is no way to write a value unescaped. Names are looked up in the item, then in what is around it. Nothing here
 * suspends.
 */
#pragma once

#include "base/buf.h"
#include "base/json.h"

struct template_set {
        const char *(*file)(const char *name, size_t *ret_len); /* NULL: there is none */
        const char *(*asset)(const char *name);                 /* NULL: there is none */
        const struct json *texts;                               /* of the language, then of English */
        const struct json *fallback;
};

/* Appends the page. -EINVAL for a template that is malformed, -ENOENT for a file, asset or text that does not exist,
 * -ENOBUFS. */
int template_render(const struct template_set *set, const char *file, const struct json *data, struct buf *out);
