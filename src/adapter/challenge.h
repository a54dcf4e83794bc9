/*
 * challenge: the Bearer challenge of a 401 or 403 (RFC 6750 §3, RFC 9728 §5.1), and sets of scopes. Pure.
 */
#pragma once

#include "base/str.h"

#include <stdbool.h>

struct challenge {
        bool bearer;
        char *resource_metadata, *scope, *error; /* NULL when absent */
};

void challenge_done(struct challenge *c);
/* Reads one WWW-Authenticate value, which may hold several challenges; other schemes are passed over. Adds to c what it
 * does not have yet. */
void challenge_parse(struct challenge *c, struct str value);

/* The words of a and b (each may be NULL), each once, in that order; NULL when there is none. Free it. */
char *scope_union(const char *a, const char *b);
bool scope_has(const char *scope, struct str word);
