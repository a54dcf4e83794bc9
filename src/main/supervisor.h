/*
 * supervisor: keeps boxhost running beside a server that has no privileges. A child process, root, which does nothing
 * but start boxhost, hand the other end of its socket to the server, and start it anew when it dies. It ends with the
 * server.
 */
#pragma once

#include "base/err.h"

/* Forks it; *ret_feed is the server's end, on which one descriptor arrives for each boxhost that was started. argv is
 * boxhost's, with `--fd 3`; it may be freed afterwards. */
int supervisor_start(char *const *argv, int *ret_feed, struct err *e);
