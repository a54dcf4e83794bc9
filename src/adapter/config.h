/* config: what the environment says (adapter.md has the table). Read once at start; no network, no file. */
#pragma once

#include "base/err.h"
#include "http/url.h"

struct config {
        const char *key; /* NULL: no key */
        const char *mcp_text;
        struct url mcp, api; /* api.path: prefix without trailing slash */
        bool same_origin;
        int64_t silence_ms, stall_ms, answer_ms, tools_check_ms, unavailable_first_ms, unavailable_budget_ms,
                not_sent_delay_ms;
        int64_t wait_sec; /* what the host lets a call wait */
};

int config_read(struct config *c, struct err *e);
/* clamp(floor(n) − 35, 0, 1800) for the host's deadline n in seconds (NULL or nonsense: 60). Pure. */
int64_t config_wait_sec(const char *host_timeout);
int64_t config_budget_ms(const char *host_timeout); /* clamp(n − 15, 20, 180) s */
