/*
 * share: what each box may still write when all disks together promise more than the machine's disk has. The part of
 * that disk that is above the reserve is divided among the boxes that run, and the file system of each is told
 * (ext4's reserved_clusters) how much of its free space it does not have for now: a write beyond is refused at once
 * with ENOSPC, in the box that writes, and nothing that was accepted is lost later. Since the shares together are never
 * more than what is left, boxes cannot get at the reserve however fast they write; looking again some times a second
 * only moves what one box does not need to the others. Nothing here blocks.
 */
#pragma once

#include "boxhost/host.h"

#define SHARE_TICK_MS 250

/* Bytes kept back on a disk of this size when no other figure was given. */
uint64_t share_reserve(uint64_t disk_bytes);

struct share_box {
        uint64_t free; /* bytes free in its file system */
        uint64_t mine; /* out: how many of them it may use */
};
/* Divides what is left: nobody gets more than its free space, what one does not need goes to the others. Pure. */
void share_divide(uint64_t left, struct share_box *boxes, size_t n);

/* Looks at the disk and at the boxes and tells each its share. */
void share_out(struct host *h);
/* How long until share_out is due, in ms; -1 when there is nobody to share with. */
int share_due(const struct host *h);
