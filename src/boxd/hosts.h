/* hosts: the box's own part of /etc/hosts. Pure text work, apart from op_hosts. */
#pragma once

#include "base/buf.h"

/*
 * Appends to out the text of old with our part (between two marker lines) replaced by part, or added at the end. A part
 * whose end marker is missing reaches to the end of its own lines only: the marker line itself is dropped.
 */
int hosts_merge(struct buf *out, struct str old, struct str part);
bool hosts_name_ok(const char *s);
