/*
 * image: what boxes start from. `host` is made here from the machine itself: a skeleton of chosen files (an allow list,
 * never a deny list) below /, and the machine's /usr. Other images are folders below the folder of all images: either
 * <name>/rootfs, which somebody unpacked, or <name>/current, a link to the version <name>/v-<id> that image_build made
 * (its tree is v-<id>/rootfs). A box keeps the version that it started from. Making the skeleton copies some ten
 * thousand small files and blocks for about a second; it happens once, at start, when something on the list changed.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"

#include <stdbool.h>

#define IMAGE_NAME_MAX 64
#define IMAGE_SKELETON_MAX 32
#define IMAGE_HOST "host"
#define IMAGE_IDENTITY_MAX 96

struct image {
        int lower;                        /* the root folder's descriptor, owned */
        bool with_usr;                    /* the machine's /usr belongs to it */
        char version[IMAGE_SKELETON_MAX]; /* the folder's name below the image: boxes keep it alive */
};

bool image_name_ok(const char *name);
/* "v-" and an id, as image_build names them. */
bool image_version_ok(const char *version);
/* Makes or finds the current skeleton; images is the folder of all images. */
int image_host_prepare(int images, char version[IMAGE_SKELETON_MAX], struct err *e);
/* Opens an image by name; host_version is what image_host_prepare said. -ENOENT names the images that there are. */
int image_open(int images, const char *name, const char *host_version, struct image *ret, struct err *e);
/* Opens the version that a box recorded: it is there as long as a box says that it needs it. */
int image_open_version(int images, const char *name, const char *version, struct image *ret, struct err *e);
/* The version that new boxes of a built image get; -ENOENT when nobody built it. */
int image_current(int images, const char *name, char version[IMAGE_SKELETON_MAX]);
/* The image of a box that names none: what image_set_default wrote, if it can be opened, else `host`. */
void image_default(int images, char ret[IMAGE_NAME_MAX + 1]);
int image_set_default(int images, const char *name, struct err *e);
/*
 * Names what a box's own layer lies over: the same text means the same lower files. A disk that was written over other
 * ones must not be put over these: an overlay of another lower layer is undefined.
 */
void image_identity(const struct image *image, char ret[static IMAGE_IDENTITY_MAX]);
/* Removes skeletons for which used() says no. */
void image_host_sweep(int images, bool (*used)(const char *version, void *arg), void *arg);
/* Calls fn for each image that could be opened, `host` first, then by name. */
void image_each(int images, void (*fn)(const char *name, void *arg), void *arg);
/* The machine's bundle of certificate authorities, or NULL. */
const char *image_ca_bundle(void);
