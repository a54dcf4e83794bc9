/*
 * skeleton: the root folder of the image `host` without /usr. What is copied is on a list in skeleton.c, must be
 * readable by everybody on the machine, and, for package sources, must carry no credentials; accounts are generated.
 * Blocks for the time of copying.
 */
#pragma once

#include "base/err.h"

#include <stdint.h>

/* Changes when something on the list changes. */
uint64_t skeleton_fingerprint(void);
/* Fills an empty folder. */
int skeleton_make(int dir, struct err *e);
