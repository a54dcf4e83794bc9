/*
 * host: one running boxhost: its folders, what the machine can do, and its boxes. struct host owns every descriptor and
 * every struct box in it; everything runs on one thread. A box's processes, mounts and limits belong to the kernel:
 * when boxhost dies nothing happens to them.
 */
#pragma once

#include "base/list.h"
#include "boxhost/cgroup.h"
#include "boxhost/closer.h"
#include "boxhost/disk.h"
#include "boxhost/dns.h"
#include "boxhost/features.h"
#include "boxhost/image.h"
#include "boxhost/net.h"

#include <sys/types.h>

#define BOX_ID_MAX 32
#define INSTANCE_LEN 8

struct host_options {
        const char *state;    /* the server's state folder */
        const char *boxd;     /* the program that becomes PID 1 */
        const char *resolver; /* NULL: what /etc/resolv.conf says */
        uid_t server_uid;
        size_t pool;      /* prepared disks */
        uint64_t reserve; /* bytes of the disk that boxes do not get; 0: computed */
        struct net_range subnet;
        struct net_range allow[NET_ALLOW_MAX];
        size_t allow_count;
};

enum box_state { BOX_RUNNING, BOX_FROZEN, BOX_DEAD };

struct box_size {
        double cpus;
        uint64_t memory, pids, disk;
};

enum source_kind {
        SOURCE_LISTENER,
        SOURCE_CONN,
        SOURCE_BOX,
        SOURCE_FILLER,
        SOURCE_DNS,
        SOURCE_CLOSER,
        SOURCE_IMAGES,
        SOURCE_SIGNAL
};

struct source { /* what the request loop waits for */
        enum source_kind kind;
        void *of;
};

struct box {
        struct list link;
        struct source source;
        char id[BOX_ID_MAX + 1];
        char image[IMAGE_NAME_MAX + 1];
        char skeleton[IMAGE_SKELETON_MAX];
        char lower[IMAGE_IDENTITY_MAX]; /* which lower layer its disk belongs to */
        unsigned index;
        unsigned owner; /* the index whose user ids lie on its disk: not its own after some restores */
        int loop;       /* number of its disk's loop device, -1 without one */
        pid_t pid;
        uint64_t start_time;
        int pidfd; /* -1 when dead */
        int disk;  /* the top of its file system, -1 when unknown (adopted boxes) or not limited */
        enum box_state state;
        uint64_t withheld; /* blocks of its disk that it does not have for now (share.h) */
        struct box_size size;
        int64_t created_ms;
        char *names; /* declared ones, each ended by a NUL; NULL: none */
        size_t names_len;
};

struct host {
        const struct host_options *options;
        int poll;         /* of the request loop, -1 before it runs */
        char folder[512]; /* absolute path of the state folder */
        int own;          /* DIR/boxhost; also the working folder */
        int boxes_dir, archive_dir, pool_dir, images_dir, sock_dir, run_dir;
        int lock, images_lock;
        char instance[INSTANCE_LEN + 1];
        int boxd, dev, launch, ca;
        char skeleton[IMAGE_SKELETON_MAX];
        unsigned next_index;
        struct cgroups cgroups;
        struct net net;
        struct net_config net_config;
        struct disk_pool disks;
        struct dns dns;
        int wire; /* the listening socket for declared names, -1 when boxes have no network */
        struct closer closer;
        struct features features;
        struct list boxes; /* struct box, sorted by id */
        size_t count;
        int64_t shared_ms; /* when share_out last looked */
        bool scarce;       /* all disks together promise more than there is */
};

/* Opens a folder below another, making it when it is missing. */
int host_open_made(int at, const char *name, mode_t mode, int *ret, struct err *e);
/* -EPERM unless the folder is root's alone to change. */
int host_check_ours(int fd, const char *name, struct err *e);

/* Folders, lock and instance name; -EBUSY when another boxhost uses the folder. */
int host_open_state(struct host *h, const struct host_options *options, struct err *e);
/* Everything else that boxes need; afterwards h->features tells what there is. */
int host_prepare(struct host *h, struct err *e);
void host_close(struct host *h);

struct box *host_find(struct host *h, const char *id);
void host_add(struct host *h, struct box *b);
void host_unwatch(struct host *h, struct box *b); /* closes its pidfd */
void host_forget(struct host *h, struct box *b);  /* frees b */
