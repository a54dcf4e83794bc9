/* clock: the two clocks, and RFC 3339 text. Nothing here suspends. */
#pragma once

#include "base/str.h"

#include <stdint.h>

int64_t clock_ms(void); /* monotonic milliseconds */
int64_t clock_us(void); /* monotonic microseconds */
int64_t wall_ms(void);  /* Unix time in milliseconds */

#define RFC3339_LEN 25
/* "2026-01-02T03:04:05.678Z" (RFC 3339, UTC) into out; returns out. */
char *rfc3339(int64_t unix_ms, char out[RFC3339_LEN]);
int rfc3339_parse(struct str s, int64_t *ret_unix_ms); /* -EINVAL */
