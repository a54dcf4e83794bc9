/*
 * wires: which names a box has and what each of them reaches (docs/wiring.md). The table lies in the box's row
 * (services, wiring) and is the truth; struct wires is a parsed copy of one moment, owned by whoever parsed it.
 *
 * Parsing, changing, looking up and writing suspend nothing. What talks to the box or to the other side is a
 * coroutine_fn.
 */
#pragma once

#include "control/control.h"

#include <stdint.h>

#define WIRES_MAX DRIVER_NAMES_MAX /* names of one box */
#define WIRE_NAME_MAX 63           /* bytes of a name */
#define SCENE_PATHS_MAX 32         /* path prefixes */
#define SCENE_PATH_MAX 256         /* bytes of one */

enum wire_mode {
        WIRE_BOX,      /* name:port reaches target_port in the box itself */
        WIRE_EXTERNAL, /* HTTP is forwarded to externalBaseUrl */
        WIRE_LINK,     /* name:port reaches target_port in from_box */
};

struct wire {
        char name[WIRE_NAME_MAX + 1];
        uint16_t port;
        uint16_t target_port; /* where it leads in the box, or in the linked one; never 0 */
        bool target_given;    /* false: target_port is only the default, the same as port */
        bool web;             /* a person opens it in a browser */
        enum wire_mode mode;
        char from_box[33]; /* WIRE_LINK: the other box, else "" */
};

struct wires {
        struct wire wire[WIRES_MAX]; /* in the order of their declaration; a wire's place never changes */
        size_t count;
        char *external_base_url; /* without a slash at its end; NULL: there is none */
        char *scene_paths[SCENE_PATHS_MAX];
        size_t scene_path_count;
};

/* Reads a row's table. Never fails: what a broken row does not hold is not there. */
void wires_read(const struct box_row *row, struct wires *ret);
void wires_done(struct wires *w);
#define _cleanup_wires_ _cleanup_(wires_done)

/* NULL when the box has no such name. */
const struct wire *wire_find(const struct wires *w, const char *service);
const char *wire_mode_name(enum wire_mode mode); /* "box" "external" "link" */
/* True when a request for this path (starting with '/', without query) of the box's scene belongs to externalBaseUrl:
 * it lies at or below one of scene_paths. */
bool wires_scene_path(const struct wires *w, struct str path);

/* ---- changing ---- */

/* One form of sandbox_wire, or one item of sandbox_start's services. */
struct wire_change {
        const char *service;
        int64_t port, target_port; /* 0: not given */
        const char *mode;          /* "box", "external" or NULL */
        const char *from_box;      /* or NULL */
        bool has_web, web;
};
/* -EINVAL with the argument in e's words, and *w as it was. Whether from_box exists is not looked at. */
int wires_change(struct wires *w, const struct wire_change *change, struct err *e);
/* paths: an array of strings as arguments hold it. */
int wires_set_scene_paths(struct wires *w, const struct json *paths, struct err *e);
/* What sandbox_start asks for: services (checked array or NULL) and externalBaseUrl (or NULL), with everything that
 * can be said without starting anything. */
int wires_begin(const struct control *c, const struct identity *who, const struct json *services,
                const char *external_base_url, struct wires *ret, struct err *e);
/* Refuses a box that is no live one of this account, and the box itself (NULL: not there yet). */
int wires_check_link(const struct control *c, const struct identity *who, const char *box, const char *from_box,
                     struct err *e);
char *wires_services_text(const struct wires *w); /* as rows hold it; allocated */
char *wires_wiring_text(const struct wires *w);

/*
 * The whole table, as every tool and REST shows it, into the open object: services[], externalBaseUrl and scenePaths
 * when there are, links[], linkedFrom[].
 */
void wires_write(struct jw *w, struct control *c, const struct box_row *row);

/* ---- at work (wire_serve.c) ---- */

void wires_open(struct control *c);
/* Takes no more connections and ends those there are. Before the driver goes away. */
void coroutine_fn wires_stop(struct control *c);
void wires_close(struct control *c); /* after wires_stop, or when the loop has ended */

/* Gives the box its names as its row has them: /etc/hosts and the resolver. Calls for the same box take turns. */
int coroutine_fn wires_apply(struct control *c, const char *box, struct err *e);
/* After a restart of either: for every running box that has names. */
void coroutine_fn wires_apply_all(struct control *c);
/* The box is no more: its connections end. */
void wires_forget(struct control *c, const char *box);

/*
 * A byte stream to what a wire of this box reaches. WIRE_BOX and WIRE_LINK: to the port, and an error that says in
 * words why there is none (a linked box that does not run, a port nobody listens on). WIRE_EXTERNAL: to the host of
 * externalBaseUrl, through TLS where it is https; the caller speaks HTTP there, with its Host and base path. What fails
 * is told in links[]. A linked box that is frozen wakes; *ret_used (NULL for other modes) is a reference to it, which
 * keeps it awake until the caller releases it with the stream.
 */
int coroutine_fn wire_connect(struct control *c, const struct box_row *row, const struct wire *w, struct stream **ret,
                              struct box **ret_used, struct err *e);

/* The port that a linked name reaches in the other box: the one that was given, else where that box's own name of the
 * same port leads, else the same port. */
uint16_t wire_link_port(const struct control *c, const char *account, const struct wire *w);

/* What is told of each wire at work, from the start of the server on. */
struct wire_count {
        size_t open;            /* connections of the box itself, now */
        uint64_t total, failed; /* those that were made, and those that could not be */
        int64_t error_at;       /* wall clock; 0: never */
        char error[200];
};
/* NULL when nothing ever went through. */
const struct wire_count *wire_counted(const struct control *c, const char *box, size_t place);
