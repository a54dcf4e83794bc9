/*
 * reconcile: makes what boxhost knows and what the machine has the same again. Runs at start (and, with everything to
 * go, at cleanup). Blocks as long as the kernel needs to end leftovers.
 */
#pragma once

#include "boxhost/host.h"

/* Adopts living boxes, notes dead ones, removes half-made ones and sweeps what belongs to no box. */
int reconcile(struct host *h, struct err *e);
/* Destroys every box of the instance and removes each trace of it on the machine but the state folder itself. */
int reconcile_cleanup(struct host *h, struct err *e);
