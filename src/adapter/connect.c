/* connect: parallelsandbox_connect, the tool by which a person is asked to sign in. */
#include "adapter/call.h"
#include "adapter/signin.h"
#include "base/mem.h"

#include <errno.h>
#include <stdlib.h>

const char signin_tool_list[] =
        "{\"tools\":[{\"name\":\"" CONNECT_TOOL "\",\"title\":\"Connect to ParallelSandbox\",\"description\":"
        "\"Signs in to ParallelSandbox: opens the person's browser at the sign-in page and waits. Call it once before "
        "anything else; the sandbox tools appear when the sign-in is done. When it answers that it is still waiting, "
        "show the person the link and call it again.\",\"inputSchema\":{\"type\":\"object\",\"properties\":{},"
        "\"additionalProperties\":false},\"annotations\":{\"title\":\"Connect to ParallelSandbox\",\"readOnlyHint\":"
        "false,\"destructiveHint\":false,\"idempotentHint\":true,\"openWorldHint\":true}}]}";

static void reply_state(struct call *c, bool connected, const char *link, const char *message)
{
        _cleanup_buf_ struct buf b = BUF_MAX(32768);
        struct jw w;

        jw_init(&w, &b);
        jw_obj(&w);
        jw_kbool(&w, "connected", connected);
        if (link)
                jw_kstr(&w, "link", link);
        jw_kstr(&w, "message", message);
        if (jw_end_all(&w) == 0)
                call_answer_text(c, buf_str(&b), false, true);
}

void coroutine_fn call_connect(struct call *c)
{
        struct adapter *a = c->a;
        _cleanup_free_ char *text = NULL;
        struct err e = { 0 };
        int r = 0;

        creds_load(&a->creds);
        if (!creds_ready(&a->creds)) {
                signin_start(a, NULL);
                r = signin_wait(a, c, signin_patience(a), &e);
        }
        if (c->cancelled || r == -ECANCELED)
                return;
        if (creds_ready(&a->creds)) {
                text = xasprintf("Connected to %.300s. The sandbox tools are available now: list the tools again if "
                                 "you do not see them.",
                                 a->config.mcp_text);
                reply_state(c, true, NULL, text);
        } else if (r == -ETIMEDOUT && a->signin.running) {
                const char *link = a->signin.link;

                reply_state(c, false, link,
                            !link ? "The sign-in is being prepared. Call this tool again."
                            : a->signin.browser
                                    ? "Nobody has signed in yet. A browser was opened; if none is to be "
                                      "seen, the person can open the link. Call this tool again to go on "
                                      "waiting."
                                    : "Nobody has signed in yet. Ask the person to open the link in a "
                                      "browser on this machine, and call this tool again to go on waiting.");
        } else {
                text = xasprintf("Not connected: %s. Call this tool again to try once more.", err_text(&e));
                call_answer_text(c, str_of(text), true, false);
        }
}
