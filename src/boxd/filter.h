/*
 * filter: what boxd takes away from the programs it starts, on top of the filter that it runs under itself
 * (boxhost/seccomp.h). boxd's own leaves room for a browser's sandbox: a few combinations of new namespaces. A command
 * gets none of them. A program that is started for its sandbox (launch.h) gets them, and loses instead what
 * capabilities in a network namespace of its own would be good for: netlink, and the socket options and ioctls that
 * configure networks. So nothing in a box can have both.
 *
 * Both change the calling thread for good and are inherited. Async-signal-safe: for the time between fork and exec.
 * 0, or -errno; where no_new_privs is not set (another runtime made the box) nothing is done.
 */
#pragma once

#include <linux/filter.h>

int filter_command(void);
int filter_sandboxed(void);

/* For tests. */
const struct sock_fprog *filter_command_program(void);
const struct sock_fprog *filter_sandboxed_program(void);
