/* scratch: a temporary folder and a database in it, for one test. */
#pragma once

#include "store/db.h"

struct scratch {
        char dir[64];
        char path[96];
        struct db *db;
};

int scratch_setup(void **state);
int scratch_teardown(void **state);
void scratch_reopen(struct scratch *s);
