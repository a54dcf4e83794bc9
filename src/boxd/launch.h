/*
 * launch: programs that bring a sandbox of their own (Chromium) are started by boxd, since a command of the box may not
 * make namespaces. Three parts, all of this program:
 *
 * The client (`/run/boxd/launch PROGRAM ARGUMENT…`) connects to LAUNCH_SOCKET, hands over its standard streams, folder,
 * arguments and environment, forwards its signals, and ends as the program ends.
 *
 * PID 1 takes the connection and gives it to the keeper whose job the client belongs to, so the program is part of that
 * job: seen by procs, ended by stop and by a timeout. Who belongs to no job gets a worker of PID 1's.
 *
 * The starter, a child of the keeper, runs the program under filter_sandboxed, in a user namespace where the box's root
 * is called 1000: Chromium refuses to run as root with its sandbox on, while the files of the box's root stay readable
 * and writable. It has no capability outside of the namespaces that its sandbox makes. When the client is gone the
 * program is ended with all it has started.
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#define LAUNCH_SOCKET "/run/boxd/launch.sock"
#define LAUNCH_UID 1000 /* what the box's root is called in there */

/* PID 1: the listening socket (-1: none), and one accepted connection. */
int launch_listen(void);
struct pid1;
void launch_accept(struct pid1 *p);

/* A child of the calling keeper becomes the starter for the client at fd, which is closed here. */
void launch_fork(int fd);

/*
 * What the client sends, with its stdin, stdout, stderr and folder as descriptors: a frame of stream 4 whose bytes are
 * the number of arguments (u32, little endian), and then all arguments and all variables, each with a NUL at its end.
 */

/* The client; argv begins with the program. */
int launch_client(char **argv);
