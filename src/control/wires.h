/*
 * wires: which names a box has and what each of them reaches. The table lies in the box's row (services, wiring) and
 * is the truth; struct wires is a parsed copy of one moment, owned by whoever parsed it. docs/wiring.md has the whole.
 *
 * Parsing, looking up and writing suspend nothing. What talks to the box or to the other side is a coroutine_fn.
 */
#pragma once

#include "control/control.h"

#include <stdint.h>

#define WIRES_MAX 32       /* names of one box */
#define WIRE_NAME_MAX 63   /* bytes of a name */
#define SCENE_PATHS_MAX 32 /* path prefixes */

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
        char *external_base_url; /* NULL: there is none */
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

/*
 * A byte stream to what a wire of this box reaches. WIRE_BOX and WIRE_LINK: to the port, and an error that says in
 * words why there is none (a linked box that does not run, a port nobody listens on). WIRE_EXTERNAL: to the host of
 * externalBaseUrl, through TLS where it is https; the caller speaks HTTP there, with its Host and base path.
 * Counts for links[].
 */
int coroutine_fn wire_connect(struct control *c, const struct box_row *row, const struct wire *w, struct stream **ret,
                              struct err *e);
