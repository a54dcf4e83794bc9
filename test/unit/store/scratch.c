#include "scratch.h"

#include "base/file.h"
#include "base/mem.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>

int scratch_setup(void **state)
{
        struct scratch *s = xcalloc(1, sizeof *s);
        struct err e = { 0 };

        (void) snprintf(s->dir, sizeof s->dir, "%s/psbx-store-XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
        if (!mkdtemp(s->dir))
                return -1;
        (void) snprintf(s->path, sizeof s->path, "%s/state.db", s->dir);
        if (db_open(s->path, &s->db, &e) < 0) {
                (void) fprintf(stderr, "%s\n", err_text(&e));
                return -1;
        }
        *state = s;
        return 0;
}

void scratch_reopen(struct scratch *s)
{
        db_close(s->db);
        s->db = NULL;
        if (db_open(s->path, &s->db, NULL) < 0)
                abort();
}

int scratch_teardown(void **state)
{
        struct scratch *s = *state;

        db_close(s->db);
        (void) remove_tree(AT_FDCWD, s->dir);
        free(s);
        return 0;
}
