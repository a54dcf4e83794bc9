/* config: what the environment says (adapter.md has the table). Read once at start; no network, no file. */
#pragma once

#include "base/err.h"
#include "base/log.h"
#include "http/url.h"

#define REFRESH_ARG "--refresh" /* the mode creds.c starts */

struct config {
        const char *key; /* NULL: no key */
        const char *mcp_text;
        const char *auth_dir;                  /* NULL: the default */
        const char *client_id, *client_secret; /* of a client that the authorization server knows already, or NULL */
        const char *self;                      /* how this program is started, NULL: unknown */
        bool no_browser;
        bool modern_first; /* ask for the newer era before the older one */
        enum log_level log_level;
        struct url mcp, api; /* api.path: prefix without trailing slash */
        bool same_origin;
        int64_t silence_ms, stall_ms, answer_ms, tools_check_ms, unavailable_first_ms, unavailable_budget_ms,
                not_sent_delay_ms, signin_ms;
        int64_t wait_sec; /* what the host lets a call wait */
};

int config_read(struct config *c, struct err *e);
/* clamp(floor(n) − 35, 0, 1800) for the host's deadline n in seconds (NULL or nonsense: 60). Pure. */
int64_t config_wait_sec(const char *host_timeout);
int64_t config_budget_ms(const char *host_timeout); /* clamp(n − 15, 20, 180) s */
