/* loop_impl: what the files of loop/ share about libuv. Included by no other folder. */
#pragma once

#include <errno.h>

#include "loop/loop.h"
#include "loop/task.h"

#include <uv.h>

uv_loop_t *loop_uv(void);
bool loop_is_up(void);

/* tmo.c */
int tmo_init(void);
void tmo_sync(void); /* before polling: the one uv timer follows the head of the heap */
void tmo_done(void);

/* coro.c: for loop_done. */
void coro_cancel_all(void);
void coro_pool_done(void);

/* Objects that were given up by their owners but still need the loop: told to end at once, and counted until they have.
 */
void linger_end_all(void);
size_t child_orphans(void);

/* Aborts with a message: a broken rule of docs/coroutines.md, not a run-time condition. */
_Noreturn void loop_broken(const char *what, const char *who);

static inline bool would_block(int err)
{
#if EAGAIN == EWOULDBLOCK
        return err == EAGAIN;
#else
        return err == EAGAIN || err == EWOULDBLOCK;
#endif
}

/* Makes fd close-on-exec and non-blocking; -errno. */
int fd_prepare(int fd);
/* socket(2) with both set from the start where the system can. */
int socket_prepared(int family, int type);
