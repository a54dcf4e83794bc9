/*
 * scene_listen: listens on the ports of scenes (control/scene_ports.h) while boxes have them. Their connections are the
 * HTTP server's like all others, with a route attached that says by which port they came: they lead to that scene and
 * nowhere else, whatever Host says. Nothing here suspends.
 */
#pragma once

#include "control/control.h"
#include "http/server.h"

struct scene_listen;
/* addr as http_server_listen takes it. -EIO: the store. */
int scene_listen_new(struct control *c, struct http_server *http, const char *addr, struct scene_listen **ret,
                     struct err *e);
void scene_listen_freep(struct scene_listen **l); /* the ports stay the services' */
