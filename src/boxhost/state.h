/*
 * state: what boxhost writes to disk about a box (boxes/<id>/spec.json), and machine-wide settings it changed. Files
 * are replaced atomically. Blocks for fsync.
 */
#pragma once

#include "boxhost/host.h"

/*
 * Makes boxes/<id>/spec.json, the mark of a finished box, appear whole, and makes it durable: the name is given before
 * the one fsync, which writes both.
 */
int spec_write(int box_dir, const struct box *b, struct err *e);
/* Takes the mark away again. */
void spec_withdraw(int boxes_dir, const char *id);
/* -ENOENT when the box was never finished. */
int spec_read(int boxes_dir, const char *id, struct box *ret, struct err *e);

/* This start of the machine; a pid of an earlier one means nothing. */
const char *state_boot_id(void);

/* Raises limits that all boxes share and switches forwarding on, remembering what was. */
void sysctl_raise(const char *instance);
/* Puts back what was, unless another instance still needs it. */
void sysctl_restore(const char *instance);
