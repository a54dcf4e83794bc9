/* gz_members: where a gzip stream stands between its members (RFC 1952 §2.2); both implementations of gz.h use it. */
#pragma once

#include "base/str.h"

#include <errno.h>
#include <stdbool.h>

struct gz_members {
        bool open;    /* inside a member */
        bool any;     /* at least one member was complete */
        bool padding; /* zeros after the last member */
};

/* Between members: skips zero padding. 1: a member begins at *in. 0: there is nothing to inflate. -EPROTO. */
static inline int gz_members_next(struct gz_members *m, struct str *in)
{
        if (in->n == 0)
                return 0;
        if (!m->any || (!m->padding && in->p[0] != 0)) {
                m->open = true;
                return 1;
        }
        m->padding = true;
        for (size_t i = 0; i < in->n; i++)
                if (in->p[i])
                        return -EPROTO;
        in->p += in->n;
        in->n = 0;
        return 0;
}

static inline void gz_members_end(struct gz_members *m)
{
        m->open = false;
        m->any = true;
}

static inline bool gz_members_complete(const struct gz_members *m)
{
        return m->any && !m->open;
}
