/*
 * denied: why something was refused in a box, in words. An agent would otherwise guess from an errno text, and run the
 * same again. Looks only at commands that failed; the figures come from the driver, never from the box.
 */
#pragma once

#include "control/exec.h"

void coroutine_fn denied_explain(struct control *c, const char *box, const char *cmd, struct exec_result *ret);

/* The first IPv4 address in text that boxes may not reach (private, link-local, shared or loopback of the host's side),
 * into out; allow lists networks that were opened. Pure. */
bool denied_address(struct str text, const char *const *allow, char out[16]);
