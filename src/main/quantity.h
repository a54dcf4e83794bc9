/* quantity: times and sizes as people write them on a command line. Pure. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* "90s", "10m", "24h", "30d" → milliseconds, 1 s to 3650 d; with may_be_never also "never" → 0. -EINVAL. */
int parse_duration(const char *text, bool may_be_never, int64_t *ret_ms);
/* "64M", "4G", "1T", or bytes → bytes, 16 MiB to 1 PiB. -EINVAL. */
int parse_bytes(const char *text, uint64_t *ret);
