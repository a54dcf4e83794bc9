#include "adapter/config.h"
#include "base/mem.h"
#include "base/str.h"

#include <errno.h>
#include <stdlib.h>

#define HOST_TIMEOUT_SEC 60

static const char *env(const char *name)
{
        const char *v = getenv(name);

        return v && *v ? v : NULL;
}

static int64_t env_ms(const char *name, int64_t def)
{
        const char *v = env(name);
        uint64_t n;

        return v && parse_u64(str_of(v), 24 * 3600 * 1000, &n) == 0 ? (int64_t) n : def;
}

/* Whole seconds; a fraction is cut off. */
static int64_t host_sec(const char *text)
{
        struct str s = str_of(text ? text : ""), whole = str_cut(&s, '.');
        uint64_t n;

        return parse_u64(whole, INT32_MAX, &n) == 0 ? (int64_t) n : HOST_TIMEOUT_SEC;
}

static int64_t clamp(int64_t n, int64_t lo, int64_t hi)
{
        return n < lo ? lo : n > hi ? hi : n;
}

int64_t config_wait_sec(const char *host_timeout)
{
        return clamp(host_sec(host_timeout) - 35, 0, 1800);
}

int64_t config_budget_ms(const char *host_timeout)
{
        return clamp(host_sec(host_timeout) - 15, 20, 180) * 1000;
}

static void cut_slashes(char *path)
{
        size_t n = strlen(path);

        while (n && path[n - 1] == '/')
                path[--n] = '\0';
}

int config_read(struct config *c, struct err *e)
{
        const char *host = env("PSBX_TOOL_TIMEOUT_SEC"), *api = env("PARALLELSANDBOX_API_URL");
        int r;

        *c = (struct config){
                .key = env("PARALLELSANDBOX_API_KEY"),
                .mcp_text = env("PARALLELSANDBOX_MCP_URL"),
                .auth_dir = env("PARALLELSANDBOX_AUTH_DIR"),
                .client_id = env("PARALLELSANDBOX_OAUTH_CLIENT_ID"),
                .client_secret = env("PARALLELSANDBOX_OAUTH_CLIENT_SECRET"),
                .no_browser = cstr_eq(env("PARALLELSANDBOX_NO_BROWSER"), "1"),
                .modern_first = cstr_eq(env("PSBX_ADAPTER_ERA"), "modern"),
                .log_level = LOG_LEVEL_INFO,
                .silence_ms = env_ms("PSBX_ADAPTER_SILENCE_MS", 75000),
                .stall_ms = env_ms("PSBX_ADAPTER_STALL_MS", 120000),
                .answer_ms = env_ms("PSBX_ADAPTER_ANSWER_MS", 600000),
                .tools_check_ms = env_ms("PSBX_ADAPTER_TOOLS_CHECK_MS", 600000),
                .unavailable_first_ms = env_ms("PSBX_ADAPTER_UNAVAILABLE_FIRST_MS", 2000),
                .unavailable_budget_ms = env_ms("PSBX_ADAPTER_UNAVAILABLE_BUDGET_MS", config_budget_ms(host)),
                .not_sent_delay_ms = env_ms("PSBX_ADAPTER_NOT_SENT_DELAY_MS", 5000),
                .signin_ms = env_ms("PSBX_ADAPTER_SIGN_IN_MS", 300000),
                .wait_sec = config_wait_sec(host),
        };
        (void) log_level_parse(env("PSBX_LOG_LEVEL"), &c->log_level);
#ifdef __linux__
        c->self = "/proc/self/exe"; /* also when the file was replaced meanwhile */
#endif
        if (!c->mcp_text)
                c->mcp_text = "http://127.0.0.1:7420/mcp";
        r = url_parse(c->mcp_text, &c->mcp, e);
        if (r < 0)
                return err_wrap(e, "PARALLELSANDBOX_MCP_URL");
        if (api) {
                r = url_parse(api, &c->api, e);
                if (r < 0)
                        return err_wrap(e, "PARALLELSANDBOX_API_URL");
        } else {
                c->api = c->mcp;
                c->api.path[0] = '\0';
        }
        cut_slashes(c->api.path);
        c->same_origin =
                c->api.https == c->mcp.https && c->api.port == c->mcp.port && strcmp(c->api.host, c->mcp.host) == 0;
        return 0;
}
