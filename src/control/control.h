/*
 * control: the product's state and rules, driver-blind. One struct control per server; everything runs on its loop.
 *
 * What a client was told lies in the store before it is told. Rows are the truth; struct box is only what a running
 * server adds.
 */
#pragma once

#include "base/map.h"
#include "base/json.h"
#include "driver/driver.h"
#include "http/call.h"
#include "loop/wait.h"
#include "store/accounts.h"
#include "store/boxes.h"
#include "store/objects.h"

/* Who is asking. Made by auth/ for each request; valid while the request runs. */
struct identity {
        char account[16];
        char key_id[32];   /* the API key, "" for a token or a browser */
        char grant_id[24]; /* the grant of an access token, else "" */
        char person[16];   /* who signed in, or let the client in; "" for a key */
        char agent[65];    /* X-Psbx-Agent, "" when absent */
        char client[65];   /* X-Psbx-Client, "" when absent */
        int64_t wait_ms;   /* X-Psbx-Tool-Wait-Sec, 25 s when absent, 1800 s at most */
};

struct control_config {
        const char *state_dir;
        const char *origin;   /* "http://127.0.0.1:7420": where links to ourselves point */
        int64_t boxes_max;    /* running at once; 0: computed from the machine's memory */
        size_t warm;          /* boxes that may stand ready; 0: none */
        int64_t freeze_ms;    /* unused for so long, a box is frozen; 0: never */
        int64_t archive_ms;   /* and for so long, archived; 0: never */
        int64_t keep_ms;      /* an archive is deleted after */
        int64_t disk_reserve; /* bytes of the machine's disk that boxes do not get; 0: computed */
        const char *const
                *allow_net; /* private networks that boxes may reach all the same (CIDR), NULL terminated, or NULL */
        const char *scene_domain; /* "boxes.example.com", with "https://" or a port when a proxy is before us; NULL:
                                     localhost */
        unsigned scene_from, scene_to; /* ports of scenes instead (scene_ports.h); 0: none */
        const char *scene_host;        /* the host of their addresses, as URLs write it */
        unsigned char link_key[32];    /* signs download links, and makes the keys of scenes */
};

struct control {
        struct control_config cfg;
        struct db *db;
        struct objects *objects;
        struct driver *driver;
        char *origin;

        struct map *boxes;               /* id -> struct box, for boxes that run */
        size_t starting;                 /* claims under way, counted against boxes_max */
        struct scene_ports *scene_ports; /* NULL: scenes have names */
        struct map *claims;              /* id -> what a call is doing to the box (box_impl.h) */
        struct waitq settled;            /* a claim ended */
        struct coro *life;               /* freezes, archives and deletes what is unused */
        bool reconcile_soon;
        struct waitq life_wake; /* reconcile_soon was set, or a claim ended meanwhile */
        bool reconciling, reconcile_again;
        struct map
                *changed_meanwhile; /* ids whose state this process changed since the driver was asked for its list */
        struct list queue;          /* callers that wait for capacity, in order */
        struct waitq capacity;
        bool reconciled; /* the driver's boxes and ours were compared since it came up */
        bool stopping;
        uint64_t execs, starts, start_failures;
        struct timer *janitor;
        struct pool *pool;      /* boxes that stand ready (pool.h), or NULL */
        struct wire_hub *wires; /* names of boxes at work (wires.h) */
        struct sem shots;       /* of a screen, at once: each holds a whole picture */
        struct events *events;  /* what people who look on are told (events.h) */
        struct left_runs *left; /* commands that outlive their calls (exec_left.c); NULL while there were none */
};

int control_new(const struct control_config *cfg, struct db *db, struct objects *objects, struct driver *driver,
                struct control **ret, struct err *e);
void control_free(struct control *c);
/* A box ended by itself: its row says so from now on. The driver calls it. */
void control_box_exited(const char *box, const char *how, void *control);

/* ---- boxes (box.c) ---- */

/* What a running server knows of a box beyond its row. Reference counted: a stop must not pull it from under a call. */
struct box {
        char id[33];
        char account[16];
        unsigned refs;
        bool stopping; /* a call looks through it, to stop it then */
        bool ending;   /* it is being put away */
        bool frozen;
        bool moving;              /* between frozen and running: wait for changed */
        int64_t used_at;          /* loop time of the last use; while somebody holds a reference it is in use */
        int64_t used_wall;        /* the same as Unix time, for people */
        int64_t noted_at;         /* when that was last written to the row */
        int64_t cpu_seen, cpu_at; /* its processor time at the last look, and when; 0: not since its last use */
        int64_t oom_kills;        /* those that were told */
        unsigned calls;           /* running exec and file calls */
        char *running_note;
        struct waitq changed;
        struct mask *mask; /* of the secrets it holds (secrets.h), while mask_known */
        bool mask_known;   /* read from the store since it last changed */
        int64_t mask_used_at;
};

/*
 * The account's box, running: a frozen one is thawed, once for all who wait. -ENOENT (unknown, or another account's:
 * the same words), -ESTALE with the reason when it does not run. It is in use until box_release: neither frozen nor
 * archived.
 */
int coroutine_fn box_acquire(struct control *c, const struct identity *who, const char *id, struct box **ret,
                             struct err *e);
/* The same for who has no identity (a scene's visitor; account NULL: whosever it is), and an archived or lost box is
 * brought back when there is room for it at once. Waits for what another call does to the box. -EAGAIN: no room. */
int coroutine_fn box_wake(struct control *c, const char *account, const char *id, struct box **ret, struct err *e);
/* A further reference to a box that runs awake, or NULL: for those who used it a moment ago. Suspends nothing. */
struct box *box_hold(struct control *c, const char *id);
/* Counts as use now, for what holds the box for long without anything happening. */
void box_touch(struct box *b);
void box_release(struct box *b);
void box_releasep(struct box **b);
#define _cleanup_box_ _cleanup_(box_releasep)

#define BOX_ID_LEN 10

struct box_request {
        const char *name, *goal, *size;
        const char *image;             /* NULL: the default */
        const struct json *services;   /* checked array or NULL */
        const struct json *secrets;    /* names, or NULL */
        const char *external_base_url; /* or NULL */
        int64_t wait_capacity_ms;
        /* Called while the caller waits for room: its place in the queue, from 1. */
        void (*waiting)(size_t place, void *arg);
        void *arg;
};
/* Claims a box; the id into id. Refusals (image, size, services, secrets, capacity) start nothing. */
int coroutine_fn box_start(struct control *c, const struct identity *who, const struct box_request *asked, char id[33],
                           struct err *e);
/*
 * Brings an archived or lost box of the account back under its id. q's name, goal, image and services replace what it
 * had; NULL leaves it. *ret_work_only: its image has changed, so only /work is what it was. Refusals start nothing, and
 * a failure leaves it as it was: -ENOENT unknown, -EEXIST it runs, -EBUSY another call is at it, -EAGAIN no room,
 * -ENOSPC.
 */
int coroutine_fn box_restore(struct control *c, const struct identity *who, const char *id, const struct box_request *q,
                             bool *ret_work_only, struct err *e);
struct box_stopped {
        struct json *unsaved; /* array, the caller's; NULL when the call was refused before */
        bool deleted;         /* it was archived or lost before: now it is gone */
        int64_t restorable_until;
};
/* Archives a box that runs, deletes one that does not. */
int coroutine_fn box_stop(struct control *c, const struct identity *who, const char *id, struct box_stopped *ret,
                          struct err *e);
/* The clock of idle boxes (life.c). life_stop before the driver stops. */
void life_start(struct control *c);
void coroutine_fn life_stop(struct control *c);
/* stopsAt and restorableUntil of a box. */
void life_write(struct jw *w, const struct control *c, const struct box_row *row);
/* -ENOSPC when the machine's disk is down to its reserve. */
int disk_has_room(struct control *c, struct err *e);
int64_t disk_reserve(const struct control *c); /* bytes */
/* Compares the store with the driver after a (re)start of either: adopts, marks lost, removes orphans. */
void coroutine_fn control_reconcile(struct control *c);

int size_lookup(const char *name, struct driver_size *ret); /* small medium large; -ENOENT */
size_t control_running(const struct control *c);
int64_t control_boxes_max(const struct control *c);

/* JSON of a box's services with their addresses, from the row (wires.c). */
void box_write_services(struct jw *w, const struct control *c, const struct box_row *row);

/* ---- images (image.c) ---- */

/* What a new box starts from; the version is what its name stands for at the moment. */
struct image_choice {
        char name[65], version[33];
};
/* The image wanted, or the default with NULL. -EINVAL with the names there are. Tells the pool what the default is. */
int coroutine_fn image_choose(struct control *c, const char *wanted, struct image_choice *ret, struct err *e);
/* There are other images, or another default. The driver calls it. */
void images_changed(void *control);

/* ---- conversations (agents.c) ---- */
bool agent_id_ok(const char *s);
void agent_called(struct control *c, const struct identity *who);
/* "working" "away" "left" "idle" "untracked", for the box's conversation. */
const char *agent_state(struct control *c, const struct box_row *row, struct agent_row *ret);
void agent_write(struct jw *w, struct control *c, const struct box_row *row, const struct identity *who);

/* ---- links (links.c) ---- */
/* A signed link to an object, valid until the given time. Allocated. */
char *link_make(const struct control *c, const char *object, const char *name, int64_t expires_ms);
/* 0, -EACCES (bad signature), -ETIME (over). */
int link_check(const struct control *c, struct str object, struct str expires, struct str signature);

/* ---- REST (rest*.c); who is authenticated ---- */
/* True when the path was one of ours and an answer was given. */
bool coroutine_fn rest_handle(struct control *c, struct call *call, const struct identity *who);
void coroutine_fn rest_blob(struct control *c, struct call *call); /* no identity: the link is the permission */
