/* request: one message of the server in, one answer out. Owns nothing; blocks as box.h says. */
#pragma once

#include "boxhost/host.h"

struct request_result {
        struct box *created;  /* to be waited for from now on */
        bool refill;          /* a disk was taken */
        struct box_rest rest; /* the answer holds once this is gone */
        int handed;           /* a descriptor that goes with the answer and stays ours, or -1 */
};

/* Appends the answer to out; a malformed message gets an answer too. */
void request_answer(struct host *h, const char *p, size_t n, struct buf *out, struct request_result *ret);
