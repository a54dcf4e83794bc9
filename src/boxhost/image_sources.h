/*
 * image_sources: where the packages of an image come from: Debian's own archives among the sources of this machine's
 * apt, with its settings for reaching them. The parsing is pure; image_sources_read runs apt's programs and blocks for
 * as long as they need.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"

#define IMAGE_RELEASE_MAX 32

struct image_sources {
        char release[IMAGE_RELEASE_MAX]; /* the code name: "bookworm" */
        struct buf lines;                /* sources.list for the image */
        struct buf keys;                 /* paths of key files outside the usual place, one a line */
        struct buf settings;             /* apt.conf while building */
        struct buf kept;                 /* what of it stays in the image: no secret, nothing of this machine alone */
};

void image_sources_init(struct image_sources *s);
void image_sources_done(struct image_sources *s);

/*
 * text is `apt-get indextargets` in IMAGE_SOURCES_FORMAT; known says for which releases there is a recipe. -ENOENT when
 * no source is Debian's, with what to do.
 */
#define IMAGE_SOURCES_FORMAT "$(LABEL)|$(CODENAME)|$(RELEASE)|$(COMPONENT)|$(SIGNED_BY)|$(REPO_URI)"
int image_sources_parse(struct image_sources *s, struct str text, bool (*known)(const char *release, void *arg),
                        void *arg, struct err *e);
/* text is `apt-config dump`. */
void image_settings_parse(struct image_sources *s, struct str text);

/* Asks this machine's apt. work is the path of an empty folder for package lists when apt has none yet. */
int image_sources_read(struct image_sources *s, const char *work, bool (*known)(const char *release, void *arg),
                       void *arg, struct err *e);
