/* migrations: the schema as a sequence of forward steps; step i brings a database from version i to i+1. Steps are
 * never edited once released. */
#pragma once

#include <stddef.h>

extern const char *const migrations[];
extern const size_t migration_count;
