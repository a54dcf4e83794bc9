/* cli: what the commands of `parallelsandbox` share. Each command is one file and one row of the table in
 * parallelsandbox.c. */
#pragma once

#include "base/err.h"

#include <stdbool.h>
#include <sys/types.h>

enum { EXIT_USAGE = 2 };

#define DEFAULT_LISTEN "127.0.0.1:7420"

struct command {
        const char *name, *args, *help;
        int (*run)(int argc, char **argv); /* argv[0] is the command's name; returns the exit code */
};

int cmd_serve(int argc, char **argv);
int cmd_up(int argc, char **argv);
int cmd_down(int argc, char **argv);
int cmd_status(int argc, char **argv);
int cmd_doctor(int argc, char **argv);
int cmd_keys(int argc, char **argv);
int cmd_image(int argc, char **argv);
int cmd_users(int argc, char **argv);

/* The default state folder: /var/lib/parallelsandbox for root, else below the user's data folder. Allocated. */
char *default_state_dir(void);
/* A program beside this one, allocated; -ENOENT in e when it is not there. */
int sibling_program(const char *name, char **ret, struct err *e);

/* "host:port", ":port", "[v6]:port" → parts (host allocated, without brackets). */
int parse_listen(const char *s, char **ret_host, unsigned *ret_port, struct err *e);

/* The unprivileged user that a state folder belongs to: its owner, or, when root owns it, a number made from its real
 * path in the range that systemd uses for dynamic users (61184–65519). */
uid_t state_uid(const char *dir);

/* Makes the folder when missing, with the right owner (root only). */
int state_prepare(const char *dir, struct err *e);

/*
 * Enters the state folder and gives up every privilege for good: as root, in a mount namespace of its own where the
 * folder is reachable whatever the modes of its parents. The working directory is the folder afterwards. Without root:
 * only chdir.
 */
int state_enter(const char *dir, struct err *e);

/* True when the state folder's default image is one that was built or chosen. */
bool image_chosen(const char *state);

/* What a running server wrote about itself into DIR/server.json. */
struct server_info {
        char url[160];
        pid_t pid;
};
int server_info_read(const char *dir, struct server_info *ret,
                     struct err *e); /* -ENOENT when none runs (the lock is free) */

/* "parallelsandbox COMMAND: message" on stderr; returns code. */
int complain(const char *command, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
