/*
 * ops: the operations that a worker serves: a child of PID 1 that owns one connection, uses plain blocking code,
 * sends the result and exits. None of them keeps anything in memory for the next one.
 */
#pragma once

#include "base/json.h"

typedef void (*op_fn)(int fd, struct json *head);

void op_put(int fd, struct json *head);
void op_get(int fd, struct json *head);
void op_diff(int fd, struct json *head);
void op_prune(int fd, struct json *head);
void op_stat(int fd, struct json *head);
void op_stats(int fd, struct json *head);
void op_hosts(int fd, struct json *head);
void op_dial(int fd, struct json *head);
void op_screen(int fd, struct json *head);

/*
 * dial.c: tells the server that sock is connected: hands it over when the head says `pass` and the connection can carry
 * it, else carries bytes between the two until both have ended.
 */
void dial_serve(int fd, const struct json *head, int sock);
