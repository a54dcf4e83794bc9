/* ids: random bytes and identifiers that strangers cannot guess. Random bytes come from getrandom(2). */
#pragma once

#include <stdbool.h>
#include <stddef.h>

void random_bytes(void *p, size_t n); /* never fails: ends the process when the kernel has none */

/* n characters of [a-z0-9] (n*5.17 bits of entropy) and a NUL into out. */
void random_id(char *out, size_t n);

/* n random bytes as base64url without padding, allocated. */
char *random_token(size_t n);
