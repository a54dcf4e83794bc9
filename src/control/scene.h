/*
 * scene: the addresses of a box's services for a browser, `http://<service>--<box>--<key>.<domain>`. Pure but for the
 * server's secret; nothing here suspends.
 *
 * The key is 128 bits of an HMAC of the box's id under the server's link key: nobody can guess it, it is not stored
 * anywhere, and it can be printed again at any time. Box ids are never used twice, so neither are keys.
 */
#pragma once

#include "base/buf.h"
#include "control/wires.h"

#define SCENE_KEY_LEN 26   /* 128 bits in lower-case base32 (RFC 4648 §6) */
#define SCENE_LABEL_MAX 63 /* RFC 1035 §2.3.4 */

void scene_key(const struct control *c, const char *box, char ret[static SCENE_KEY_LEN + 1]);

/* Where scenes have ports, the key is the path that one comes in by: "/.psbx/<key>/…". No service is asked for a path
 * below it. */
#define SCENE_DOOR "/.psbx/"
/* Further secrets of one service's port: "pass", what its cookie holds, and "cookies", in the names of the service's.
 */
void scene_port_key(const struct control *c, const char *what, const char *box, unsigned port,
                    char ret[static SCENE_KEY_LEN + 1]);

/*
 * The first label of a service's host name. A name that is too long for it, or that browsers would take for an encoded
 * one, is told by its place among the services instead.
 */
void scene_label(const struct control *c, const char *box, const struct wires *s, size_t index,
                 char ret[static SCENE_LABEL_MAX + 1]);
/* "http://…" without a slash, of the service at index: a name, or a port (scene_ports.h), which is given at the first
 * time. -ENOSPC: no port is free. */
int scene_origin(const struct control *c, const char *box, const struct wires *s, size_t index, struct buf *out);

/* Parts of a label; false when it has not the form of one. Nothing of it is checked. */
struct scene_name {
        struct str service, box, key;
};
bool scene_name_parse(struct str label, struct scene_name *ret);
/* Compares in constant time. */
bool scene_key_ok(const struct control *c, const char *box, struct str key);
/* Which service a name's first part means, or -ENOENT. */
int scene_service_find(const struct wires *s, struct str name);

/* Whether s can be a scenes' domain: a host name, with "http://" or "https://" before it and a port behind it or not.
 */
bool scene_domain_ok(const char *s);

/* The label of a host ("a.localhost:7420") below the scenes' domain; false when it is not right below it. Whether it
 * has the form of a scene's is not looked at. */
bool scene_host_label(const struct control *c, struct str host, struct str *ret_label);

/* "url" of a service ("urlMissing", words, when there is no port for it), and "sceneUrl" (the first) and "webUrl" (the
 * first with web, else the first) of a box. Nothing is written when there is none. */
void scene_write_url(struct jw *w, const struct control *c, const char *box, const struct wires *s, size_t index);
void scene_write_box(struct jw *w, const struct control *c, const struct box_row *row);
