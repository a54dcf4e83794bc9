/*
 * screen: the box's display :99, held by PID 1. Its two listening sockets exist from the start and cost nothing; the
 * first client that connects makes PID 1 start Xtigervnc, which inherits them (the LISTEN_FDS protocol of
 * sd_listen_fds(3)), so that even this client simply gets its answer. When the X server ends, the sockets stay and the
 * next client starts a new one. Nothing here blocks.
 */
#pragma once

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define SCREEN_DISPLAY ":99"
#define SCREEN_LISTENERS 2                 /* by path, and in the abstract name space */
#define SCREEN_SOCKET "/tmp/.X11-unix/X99" /* of both */
#define SCREEN_RFB "/run/boxd/rfb.sock"    /* for the box's root alone */

struct screen {
        int listen[SCREEN_LISTENERS]; /* -1: could not be had */
        pid_t pid;                    /* the X server, or whoever refuses in its place; 0: none */
        int64_t started_ms;
        unsigned quick; /* ends in a row that came before it can have been of use */
        bool failed;    /* it does not start: who waits is told so, and the next client makes it try again */
};

void screen_init(struct screen *s);
/* Fills SCREEN_LISTENERS entries: somebody is waited for while no X server runs. */
void screen_poll(const struct screen *s, struct pollfd *v);
/* A client waits: starts the X server, or whoever tells the client why there is none. The new process or -errno. */
pid_t screen_start(struct screen *s);
/* A child of PID 1 has ended; others than the X server are ignored. */
void screen_reaped(struct screen *s, pid_t pid, int status);
