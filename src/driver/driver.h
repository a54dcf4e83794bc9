/*
 * driver: makes and removes the places where boxd runs, and gives a byte stream to it; everything else is driver-blind.
 *
 * One table of functions per kind. Each function suspends the calling coroutine; strings in results belong to the
 * caller. Box ids are `^[a-z0-9]{4,32}$` and unique for ever in one state folder.
 */
#pragma once

#include "base/err.h"
#include "base/json.h"
#include "loop/stream.h"

#include <stdint.h>

struct driver_size {
        int64_t cpus, memory_bytes, pids, disk_bytes;
};

struct driver_stats {
        int64_t cpu_usec, memory_used, memory_limit, pids_used, pids_limit, disk_used, disk_limit, oom_kills,
                pids_denied;
};

struct driver;

#define DRIVER_ADDRESS_MAX 46 /* an IP address as text */
#define DRIVER_NAMES_MAX 32

struct driver_ops {
        const char *name;
        int coroutine_fn (*create)(struct driver *d, const char *box, const char *image, const char *hostname,
                                   const struct driver_size *size, struct err *e);
        /* Idempotent: a box that is gone is no error. */
        int coroutine_fn (*destroy)(struct driver *d, const char *box, struct err *e);
        /*
         * Ends everything of a box but its disk, which is kept until it is restored or destroyed; 0 for one that is
         * kept already, and for a dead one. When it fails the box is still there, running or dead.
         */
        int coroutine_fn (*archive)(struct driver *d, const char *box, struct err *e);
        /*
         * Starts a kept box again with its disk, over its own image or (image not NULL) another. *ret_work_only: the
         * image is not what it was, and only /work came back. -EEXIST when it runs, -ENOENT, -EBUSY while its disk is
         * in use. When it fails the box is still kept.
         */
        int coroutine_fn (*restore)(struct driver *d, const char *box, const char *image, const char *hostname,
                                    bool *ret_work_only, struct err *e);
        int coroutine_fn (*freeze)(struct driver *d, const char *box, struct err *e);
        int coroutine_fn (*thaw)(struct driver *d, const char *box, struct err *e);
        /* A fresh connection to the box's boxd. -ENOENT when the box does not run. */
        int coroutine_fn (*connect)(struct driver *d, const char *box, struct stream **ret, struct err *e);
        /* fn for each box the driver knows; state "running", "frozen", "dead" or "archived". */
        int coroutine_fn (*list)(struct driver *d, int (*fn)(const char *box, const char *state, void *arg), void *arg,
                                 struct err *e);
        int coroutine_fn (*stats)(struct driver *d, const char *box, struct driver_stats *ret, struct err *e);
        /* Processes of the box that the kernel has ended for want of memory, so far; -errno. Cheap: asked around every
         * command. */
        int64_t coroutine_fn (*oom_kills)(struct driver *d, const char *box);
        /*
         * Declares the names of a box, instead of those it had: ret_addresses[i] becomes the address under which the
         * box's i-th name brings a TCP connection, to any port, to on_wire; look-ups from the box through its resolver
         * give that address too. The driver forgets them when it loses its engine: declare again from on_ready. The
         * addresses are the same for ever. -EOPNOTSUPP: this machine has no such addresses.
         */
        int coroutine_fn (*names)(struct driver *d, const char *box, const char *const *names, size_t count,
                                  char (*ret_addresses)[DRIVER_ADDRESS_MAX], struct err *e);
        /* What the machine has and lacks, as boxhost's hello tells it; owned by the caller. */
        int coroutine_fn (*hello)(struct driver *d, struct json **ret, struct err *e);
        /* {"default": name, "images": [{"name": …, "version": …}, …]}: what `create` takes; owned by the caller. */
        int coroutine_fn (*images)(struct driver *d, struct json **ret, struct err *e);
        /* Ends its connections; calls that wait get -ECONNRESET or -ECANCELED. */
        void (*stop)(struct driver *d);
        void (*free)(struct driver *d); /* after the loop has ended */
};

struct driver {
        const struct driver_ops *ops;
        /* Set by the owner: called on the loop when a box ended by itself, and when the driver lost and regained its
         * engine. */
        void (*on_exit)(const char *box, const char *how, void *arg);
        void (*on_ready)(void *arg);
        /* There are other images than before, or another default. */
        void (*on_images)(void *arg);
        /* A box connected to its name-th name, to this port. s is the callee's from then on; box is borrowed. The box
         * is who it says: the kernel lets none use another one's address. */
        void (*on_wire)(struct stream *s, const char *box, size_t name, unsigned port, void *arg);
        void *arg;
};

/*
 * The local driver (boxhost). Either fds of boxhost connections arrive over a control socket from the supervisor
 * (feed_fd >= 0, a SOCK_SEQPACKET socket that passes descriptors, one per boxhost started), or it connects to a
 * listening boxhost at socket_path. run_dir holds boxd's sockets, `<run_dir>/<box>.sock`.
 */
int driver_local_new(int feed_fd, const char *socket_path, const char *run_dir, struct driver **ret, struct err *e);
bool driver_local_ready(const struct driver *d);
