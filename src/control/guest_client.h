/*
 * guest_client: one operation on a box's boxd (docs/guest-protocol.md), server side. Everything a box sends is
 * untrusted: lengths are bounded here and JSON is parsed strictly.
 */
#pragma once

#include "control/control.h"
#include "guest/guest.h"

struct guest_op {
        struct stream *s;
        struct json *result; /* set once the result frame came */
        int64_t idle_ms;     /* longest silence accepted; < 0 none */
        int64_t send_ms;     /* longest time a box may take nothing; < 0 none */
        uint32_t left;       /* bytes of the frame being read */
        struct guest_header frame;
};

/* Connects and sends the head (consumed). */
int coroutine_fn guest_open(struct control *c, const char *box, struct json *head, struct guest_op *ret, struct err *e);
/* The same with the head's text, which holds "v": for heads that must leave no copy behind. */
int coroutine_fn guest_open_text(struct control *c, const char *box, struct str text, struct guest_op *ret,
                                 struct err *e);
int coroutine_fn guest_send(struct guest_op *g, enum guest_stream stream, bool end, const void *p, size_t n);
/*
 * The next piece of a data frame into p (at most n bytes): returns its length and the stream, or 0 for a control frame,
 * given in *ret_control (owned by the caller), or -ENODATA when the result was read (g->result), -errno on failure.
 */
ssize_t coroutine_fn guest_recv(struct guest_op *g, void *p, size_t n, enum guest_stream *ret_stream,
                                struct json **ret_control, struct err *e);
/* Reads to the result, dropping data: 0 when it is no error, else the error in e (-ENOSPC, -ENOENT, -EINVAL …). */
int coroutine_fn guest_finish(struct guest_op *g, struct err *e);
/* 0, or the errno named by a result's "code" with its text in e. */
int guest_result_error(const struct json *result, struct err *e);
void guest_close(struct guest_op *g);
#define _cleanup_guest_ _cleanup_(guest_close)

/* Whole exchange for an operation with a small answer. */
int coroutine_fn guest_ask(struct control *c, const char *box, struct json *head, struct json **ret, struct err *e);

/* "path" below /work as tools take it: a leading /work/ is dropped, other absolute paths, ~ and .. are refused by name.
 * "" and "." mean /work. */
int work_path(const char *arg, const char *name, char **ret, struct err *e);
