/*
 * ns: what happens on the other side of clone3, in the process that becomes PID 1 of a box: it joins its cgroups, waits
 * for its identity and its mounts, moves into them, sets up its network, gives up what a box must not have and executes
 * boxd. It only ever runs in the child and does not return. When boxhost dies before the child was told to go, the
 * child ends.
 */
#pragma once

#include "boxhost/cgroup.h"

#include <stdbool.h>
#include <sys/types.h>

enum { NS_ROOT, NS_DEV, NS_WORK, NS_LAUNCH, NS_USR, NS_MOUNTS };

struct ns_plan {
        int sync;            /* our end of a SOCK_SEQPACKET pair with boxhost */
        int boxd;            /* the program to execute */
        int keep;            /* boxhost's end of the pair, closed in the child: it must see boxhost die */
        int listener, ready; /* become descriptors 3 and 4 */
        int ca;              /* the machine's certificate authorities for images that are not made from it, or -1 */
        const struct cg_join *join;
        const char *hostname;
        const char *const *env;
        bool net;
};

/* boxhost → child, with NS_ROOT, NS_DEV, NS_WORK, NS_LAUNCH and, when has_usr, NS_USR as descriptors. */
struct ns_go {
        unsigned index;
        bool has_usr;
};

/* child → boxhost when a step fails; on success the socket just closes at exec. */
struct ns_failure {
        int code;
        char step[48];
};

/* Starts the child in new user, mount, pid, network, ipc and uts namespaces (the cgroup one follows when it has
 * joined). */
int ns_start(const struct ns_plan *plan, pid_t *ret_pid, int *ret_pidfd, struct err *e);
