/*
 * image_progress: what the lines of mmdebstrap, apt and dpkg say about how far a build is and why it failed. Pure: no
 * I/O, owns nothing.
 */
#pragma once

#include "base/str.h"

#include <stdbool.h>
#include <stdint.h>

struct image_progress {
        const char *stage;    /* words for a person; never NULL after image_progress_init */
        unsigned done, total; /* packages; total 0 while nobody knows */
        uint64_t disk_bytes;  /* what apt said that the packages will need, in all */
        char fault[200];      /* the line that says most about what went wrong, so far */
        enum image_fault { FAULT_OTHER, FAULT_NETWORK, FAULT_PACKAGE, FAULT_SPACE, FAULT_KEY } kind;
        unsigned packages, fetched, unpacked, set_up; /* of the step under way */
};

void image_progress_init(struct image_progress *p);
/* Takes one line; true when stage, done or total changed. */
bool image_progress_line(struct image_progress *p, struct str line);
/* What a person does about a fault, as a sentence. */
const char *image_progress_advice(const struct image_progress *p);
