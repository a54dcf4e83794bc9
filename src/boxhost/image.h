/*
 * image: what boxes start from. `host` is made here from the machine itself: a skeleton of chosen files (an allow list,
 * never a deny list) below /, and the machine's /usr. Other images are folders <images>/<name>/rootfs that somebody
 * unpacked. Making the skeleton copies some ten thousand small files and blocks for about a second; it happens once, at
 * start, when something on the list changed.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"

#include <stdbool.h>

#define IMAGE_NAME_MAX 64
#define IMAGE_SKELETON_MAX 32

struct image {
        int lower;                        /* the root folder's descriptor, owned */
        bool with_usr;                    /* the machine's /usr belongs to it */
        char version[IMAGE_SKELETON_MAX]; /* the folder's name below the image: boxes keep it alive */
};

bool image_name_ok(const char *name);
/* Makes or finds the current skeleton; images is the folder of all images. */
int image_host_prepare(int images, char version[IMAGE_SKELETON_MAX], struct err *e);
/* Opens an image by name; host_version is what image_host_prepare said. */
int image_open(int images, const char *name, const char *host_version, struct image *ret, struct err *e);
/* Removes skeletons for which used() says no. */
void image_host_sweep(int images, bool (*used)(const char *version, void *arg), void *arg);
/* Calls fn for each image that could be opened. */
void image_each(int images, void (*fn)(const char *name, void *arg), void *arg);
/* The machine's bundle of certificate authorities, or NULL. */
const char *image_ca_bundle(void);
