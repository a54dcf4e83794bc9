/*
 * record: a recording of a box's screen, one at a time in each box. ffmpeg records in the box, as a job of boxd's, into
 * a folder of the box's root; so a recording outlives this server, and what the box holds is all the state there is:
 * a job that runs, a file that waits. The file is written in fragments, so one that was killed can still be finished.
 */
#pragma once

#include "control/copy.h"
#include "rfb/rfb.h"

#define RECORD_SECONDS_MAX 1800
#define RECORD_BYTES_MAX (256ll << 20)
#define RECORD_FPS 15

struct recording {
        struct copy video;
        double seconds;
        char *overview; /* a JPEG, allocated; NULL when none could be made */
        size_t overview_len;
        unsigned overview_width, overview_height;
        bool ended_itself; /* it had ended before it was stopped */
};

/* The region's width 0: the whole screen. -EALREADY: one runs, or an ended one waits to be collected; -ENOENT: the
 * image has no ffmpeg, or no X server; e says so. */
int coroutine_fn record_start(struct control *c, const struct identity *who, const char *box,
                              const struct rfb_region *region, struct err *e);
/* Ends it (or takes one that ended by itself), finishes the file and copies it out. -ESRCH: there is none. */
int coroutine_fn record_stop(struct control *c, const struct identity *who, const char *box, struct recording *ret,
                             struct err *e);
void recording_done(struct recording *r);
#define _cleanup_recording_ _cleanup_(recording_done)
