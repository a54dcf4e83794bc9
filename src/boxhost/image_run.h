/*
 * image_run: one program as root in namespaces of its own (processes, mounts, IPC, host name; not the network), its
 * output line by line. When the caller dies or gives up, the kernel ends every process in there and its mounts vanish.
 */
#pragma once

#include "base/err.h"
#include "base/str.h"

struct image_run {
        const char *program;     /* absolute */
        const char *const *argv; /* NULL terminated */
        const char *const *env;  /* NULL terminated */
        int input;               /* becomes standard input */
        int cancel;              /* readable when the run is to end, or -1 */
        /* Each line of stdout and stderr, without its end; not 0 ends the run with that value. */
        int (*line)(struct str line, void *arg);
        void *arg;
};

/* Blocks until it ended: 0, -ECANCELED, what line returned, or -EIO when its exit code was not 0. */
int image_run(const struct image_run *run, struct err *e);
