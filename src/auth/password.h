/* password: argon2id by libsodium on the thread pool, and sign-in with its rate limits. */
#pragma once

#include "auth/visit.h"

#define PASSWORD_MIN 10
#define PASSWORD_MAX 1024

/* A login as it is stored: lower case; -EINVAL when it is empty, over 100 bytes, or has spaces or control bytes in it.
 */
int login_normalize(const char *s, char ret[static 129]);
/* 0, or the key of the text that says what is wrong. Length counts; composition does not (NIST SP 800-63B §5.1.1.2). */
const char *password_problem(const char *password, const char *login);

int coroutine_fn password_hash(struct auth *a, const char *password, char ret[static 160], struct err *e);
/* 0, -EACCES, -EBUSY (too many at once), -ECANCELED. hash "" does the same work and never matches. */
int coroutine_fn password_verify(struct auth *a, const char *password, const char *hash);

/* 0 and the person; -EACCES: not known, or wrong (the same work either way); -EAGAIN with the wait; -EBUSY. */
int coroutine_fn password_sign_in(struct visit *v, const char *login, const char *password, struct person *ret,
                                  int64_t *ret_wait_ms);
/* The address of a visitor as the limits count it: IPv6 by /64. */
void limit_address(const struct call *call, char ret[static 80]);
