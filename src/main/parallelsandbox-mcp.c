/* parallelsandbox-mcp: MCP over stdio on one side, a ParallelSandbox server on the other. See docs/adapter.md. */
#include "adapter/adapter.h"

#include <stdio.h>
#include <string.h>

static const char help[] =
        "parallelsandbox-mcp: connects an AI client that speaks MCP over stdio to a ParallelSandbox server.\n"
        "\n"
        "It takes no arguments; the client starts it. What it needs comes from the environment:\n"
        "  PARALLELSANDBOX_API_KEY   a key, made with `parallelsandbox keys add NAME`; without one a person signs in "
        "with\n"
        "                            the browser, and what comes of it is kept in ~/.parallelsandbox\n"
        "  PARALLELSANDBOX_MCP_URL   the MCP endpoint (default http://127.0.0.1:7420/mcp)\n"
        "  PARALLELSANDBOX_API_URL   the REST base (default: the origin of the MCP endpoint)\n"
        "  PSBX_TOOL_TIMEOUT_SEC     how long the client lets one tool call run (default 60)\n"
        "\n"
        "  --help, --version\n";

int main(int argc, char **argv)
{
        if (argc > 1 && strcmp(argv[1], "--help") == 0)
                return fputs(help, stdout) < 0;
        if (argc > 1 && strcmp(argv[1], "--version") == 0)
                return puts("parallelsandbox-mcp " PSBX_VERSION) < 0;
        if (argc == 2 && strcmp(argv[1], REFRESH_ARG) == 0)
                creds_refresh_main();
        if (argc > 1) {
                (void) fprintf(stderr, "parallelsandbox-mcp: unknown argument \"%s\"; --help tells what it takes\n",
                               argv[1]);
                return 2;
        }
        return adapter_main();
}
