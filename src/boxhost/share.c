#include "boxhost/share.h"

#include "boxhost/sys.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>

#define MIB (1ULL << 20)
#define FIXED_CLUSTERS 4096 /* what ext4 keeps back by itself, for its own needs */

uint64_t share_reserve(uint64_t disk_bytes)
{
        uint64_t part = disk_bytes / 20;

        return part < 256 * MIB ? 256 * MIB : part > 4096 * MIB ? 4096 * MIB : part;
}

void share_divide(uint64_t left, struct share_box *boxes, size_t n)
{
        size_t open = n;
        bool again = true;

        for (size_t i = 0; i < n; i++)
                boxes[i].mine = UINT64_MAX; /* not settled */
        while (again && open > 0) {
                uint64_t each = left / open;
                again = false;
                for (size_t i = 0; i < n; i++) {
                        if (boxes[i].mine != UINT64_MAX || boxes[i].free > each)
                                continue;
                        boxes[i].mine = boxes[i].free;
                        left -= boxes[i].free;
                        open--;
                        again = true;
                }
        }
        for (size_t i = 0; i < n; i++)
                if (boxes[i].mine == UINT64_MAX)
                        boxes[i].mine = left / open;
}

/* What the machine's disk has above the reserve; false when it cannot be told. */
static bool look_at_disk(const struct host *h, uint64_t *left)
{
        struct statvfs s;

        if (fstatvfs(h->own, &s) < 0)
                return false;
        uint64_t avail = (uint64_t) s.f_bavail * s.f_frsize, whole = (uint64_t) s.f_blocks * s.f_frsize;
        uint64_t reserve = h->options->reserve ? h->options->reserve : share_reserve(whole);
        *left = avail > reserve ? avail - reserve : 0;
        return true;
}

static int look_at_box(const struct host *h, const struct box *b, struct statfs *ret, uint64_t *backed)
{
        char path[BOX_ID_MAX + 48];
        _cleanup_close_ int root = -1;
        struct stat st;

        if (b->disk < 0) { /* adopted: the link leads to the box's root folder itself, nothing is looked up in it */
                snprintf(path, sizeof(path), "/proc/%d/root", (int) b->pid);
                root = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
        }
        if (fstatfs(b->disk >= 0 ? b->disk : root, ret) < 0)
                return -errno;
        snprintf(path, sizeof(path), "%s/" DISK_FILE, b->id);
        if (fstatat(h->boxes_dir, path, &st, AT_SYMLINK_NOFOLLOW) < 0)
                return -errno;
        *backed = (uint64_t) st.st_blocks * 512;
        return 0;
}

static void tell(struct box *b, const struct statfs *s, uint64_t mine)
{
        uint64_t fixed = min_size((uint64_t) s->f_blocks / 50, FIXED_CLUSTERS), size = (uint64_t) s->f_bsize;
        uint64_t withheld = (uint64_t) s->f_bfree > mine / size ? (uint64_t) s->f_bfree - mine / size : 0, off;
        char path[64], text[24];

        if (withheld < fixed)
                withheld = fixed;
        /* Small changes are not worth a write, unless they take away. */
        off = withheld > b->withheld ? 0 : b->withheld - withheld;
        if (withheld == b->withheld || (off > 0 && off < 256 && off * size < mine / 16))
                return;
        snprintf(path, sizeof(path), "/sys/fs/ext4/loop%d/reserved_clusters", b->loop);
        snprintf(text, sizeof(text), "%" PRIu64, withheld);
        if (sys_write(AT_FDCWD, path, text, NULL) == 0)
                b->withheld = withheld;
}

void share_out(struct host *h)
{
        struct share_box *list;
        struct statfs *stats;
        struct box **boxes;
        uint64_t left, promised = 0;
        size_t n = 0;

        h->shared_ms = clock_ms();
        if (!look_at_disk(h, &left))
                return;
        list_for_each (it, &h->boxes)
                promised += list_entry(it, struct box, link)->size.disk;
        if (promised <= left && !h->scarce)
                return; /* there is enough for all */
        h->scarce = promised > left;
        list = xcalloc(h->count + 1, sizeof(*list));
        stats = xcalloc(h->count + 1, sizeof(*stats));
        boxes = xcalloc(h->count + 1, sizeof(struct box *));
        list_for_each (it, &h->boxes) {
                struct box *b = list_entry(it, struct box, link);
                uint64_t backed = 0, used;
                if (b->state == BOX_DEAD || b->loop < 0 || look_at_box(h, b, &stats[n], &backed) < 0)
                        continue;
                /* Written in the box, and not yet on the machine's disk: it is owed already. */
                used = (uint64_t) (stats[n].f_blocks - stats[n].f_bfree) * (uint64_t) stats[n].f_bsize;
                left -= min_size(left, used > backed ? used - backed : 0);
                if (b->state == BOX_FROZEN && h->scarce)
                        continue; /* it writes nothing, and is looked at again before it does */
                list[n].free = (uint64_t) stats[n].f_bfree * (uint64_t) stats[n].f_bsize;
                boxes[n++] = b;
        }
        share_divide(left, list, n);
        for (size_t i = 0; i < n; i++)
                tell(boxes[i], &stats[i], list[i].mine);
        freep(&list);
        freep(&stats);
        freep(&boxes);
}

int share_due(const struct host *h)
{
        int64_t left;

        if (h->count == 0 || !h->disks.limited)
                return -1;
        left = h->shared_ms + SHARE_TICK_MS - clock_ms();
        return left > 0 ? (int) left : 0;
}
