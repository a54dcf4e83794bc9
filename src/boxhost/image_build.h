/*
 * image_build: makes an image with mmdebstrap, beside what there is, and puts it in place in one step. Runs in a
 * process of its own (`boxhost --images build`), never in the one that serves: it takes minutes.
 */
#pragma once

#include "boxhost/image_progress.h"
#include "boxhost/image_store.h"

struct image_build {
        const char *recipe;       /* "debian" */
        const char *name;         /* of the image; the recipe's, unless the caller wants another */
        const char *packages;     /* path of a list that takes the recipe's place, or NULL */
        const char *const *proxy; /* "http_proxy=…" … from the caller's environment, NULL terminated */
        int cancel;               /* readable when the build is to end, or -1 */
        bool keep_default;        /* do not make it the default */
        void (*tell)(const struct image_progress *p, void *arg);
        void *arg;
};

struct image_built {
        char version[IMAGE_SKELETON_MAX], release[32];
        uint64_t bytes;
        unsigned packages;
        int64_t ms;
};

/*
 * 0, or why not: nothing has changed then, and nothing is left but, after a fault that is not the caller's, the log
 * <images>/.build.log. -ECANCELED when the caller wished it.
 */
int image_build(struct image_store *s, const struct image_build *b, struct image_built *ret, struct err *e);
