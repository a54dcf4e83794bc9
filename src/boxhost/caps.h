/*
 * caps: the capabilities a box keeps. They count in the box's own user namespace only (docs/threat-model.md has the
 * table). caps_keep is called in the child of a clone, right before the filter and exec.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

uint64_t caps_kept(void); /* as a mask of 1 << CAP_x */
/* Bounding, permitted and effective become caps_kept(); inheritable and ambient empty. -errno. */
int caps_keep(void);
