/*
 * external: externalBaseUrl, which an account names and the server connects to. It may lead where the account's boxes
 * could go themselves: to public addresses and to the networks that the operator opened (--allow-net), never to the
 * machine itself or its neighbourhood otherwise. What a name resolves to is judged for every connection, and that very
 * address is connected to, so that no answer of a resolver can change in between.
 */
#pragma once

#include "control/control.h"
#include "http/tls.h"
#include "http/url.h"
#include "loop/wait.h"

/* Checks one as an argument holds it: http or https, no user, query or fragment, no address that is refused. *ret is
 * allocated, without a slash at its end. */
int external_url_check(const struct control *c, const char *text, char **ret, struct err *e);
/* May a connection go to this address? -EACCES with the reason. */
int external_address_check(const struct control *c, const char *address, struct err *e);
/* The look-ups of one box: one at a time, and its answer serves for two seconds, so that a slow resolver is not asked
 * over and over for whoever connects most. Zeroed, then external_name_init. */
struct external_name {
        bool looking;
        struct waitq looked;
        char host[256], address[64];
        int64_t at; /* loop time of the address; 0: none */
};
void external_name_init(struct external_name *n);

/* A stream to the host of a URL that was checked, through TLS where it is https; *tls is made when it is first needed
 * and stays the caller's. */
int coroutine_fn external_connect(const struct control *c, const struct url *to, struct external_name *name,
                                  struct tls_ctx **tls, struct stream **ret, struct err *e);
