/*
 * disk: the place a box writes to. With loop devices and mkfs.ext4 that is a file system of its own in a sparse file,
 * so a full disk hurts only its owner; otherwise a plain folder without a limit. A pool keeps a few disks of the last
 * used size prepared and mounted (detached: descriptors only); a child process refills it. A new disk is a sparse copy
 * of a template, which costs a tenth of mkfs. struct disk_pool owns the descriptors and the child. disk_take blocks for
 * a few milliseconds when the pool is empty, and for one mkfs when the size is new.
 */
#pragma once

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define DISK_POOL_MAX 16
#define DISK_FILE "disk.img"

struct disk {
        int mount;     /* detached */
        char name[24]; /* in the pool folder */
};

struct disk_pool {
        int dir;      /* the pool folder, borrowed */
        bool limited; /* loop and mkfs.ext4 work here */
        size_t want;
        uint64_t size; /* of the disks in it */
        struct disk ready[DISK_POOL_MAX];
        size_t n;
        pid_t filler;
        int filler_sock; /* readable when a disk arrives or the filler ends; -1 when none runs */
};

/* Empties the folder and finds out whether limits are possible (why not: in e, not an error). */
void disk_pool_open(struct disk_pool *p, int dir, size_t want, struct err *e);
void disk_pool_close(struct disk_pool *p);
/*
 * A disk of this size for a box: its file moves into box_dir as DISK_FILE. The detached mount (or, without limits, the
 * folder box_dir/root) holds the folders root, root.work, usr and usr.work.
 */
int disk_take(struct disk_pool *p, uint64_t size, int box_dir, int *ret, struct err *e);
/*
 * The disk that a box has in box_dir already: *ret is its detached mount, or box_dir/root (then *ret_plain). -EBUSY
 * while it is still mounted elsewhere: one file is never mounted twice.
 */
int disk_open(int box_dir, int *ret, bool *ret_plain, struct err *e);
/* An open file by which disk_is_free tells that nothing has the disk mounted any more; -1 for a plain folder. */
int disk_watch(int box_dir);
bool disk_is_free(int watch);
/*
 * Empties a disk but for the folder /work of its box, which keeps its files: for a root whose lower layer is another
 * one. Any number of calls, each broken off anywhere, end in the same.
 */
int disk_renew(int disk, struct err *e);
/* Number of the loop device below a disk, -1 without one; disk is a descriptor in it. */
int disk_loop(int disk);
/* The content is worth nothing any more: what is not written yet never will be. disk is a descriptor in it, or -1. */
void disk_abandon(int disk);
/* Starts the filler when disks are missing; call disk_arrived when filler_sock is readable. */
void disk_refill(struct disk_pool *p);
void disk_arrived(struct disk_pool *p);
