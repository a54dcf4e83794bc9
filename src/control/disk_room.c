/* The machine's disk: sparse disks together can promise more than there is. Boxes stop at the reserve (boxhost sees to
 * that), and nothing that would take more is begun below it. */
#include "control/box_impl.h"

#include <errno.h>
#include <sys/statvfs.h>

#define MIB ((int64_t) 1 << 20)
#define LEAST (32 * MIB) /* above the reserve: less is of no use to a box */

int64_t disk_reserve(const struct control *c)
{
        struct statvfs s;

        if (c->cfg.disk_reserve > 0)
                return c->cfg.disk_reserve;
        if (statvfs(".", &s) < 0)
                return 256 * MIB;
        /* The same figure that boxhost computes (share_reserve). */
        int64_t part = (int64_t) s.f_blocks * (int64_t) s.f_frsize / 20;
        return part < 256 * MIB ? 256 * MIB : part > 4096 * MIB ? 4096 * MIB : part;
}

int disk_has_room(struct control *c, struct err *e)
{
        struct statvfs s;

        /* The server lives in its state folder. */
        if (statvfs(".", &s) < 0)
                return 0;
        int64_t left = (int64_t) s.f_bavail * (int64_t) s.f_frsize, reserve = disk_reserve(c);
        if (left > reserve + LEAST)
                return 0;
        return err_set(e, -ENOSPC,
                       "the server's disk is nearly full: %lld MiB are left, and %lld MiB are kept back so that the "
                       "server goes on. Delete files in boxes, or delete boxes that are no longer needed "
                       "(sandbox_list {all: true} shows them; sandbox_stop on an archived one deletes it)",
                       (long long) (left / MIB), (long long) (reserve / MIB));
}
