/* The toy server by itself, without sign-in, for mcp_probe.mjs: mcp-toy [PORT]. */
#include "toy.h"

#include "loop/loop.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

static struct toy toy;

static void stop(void *arg)
{
        toy_stop(&toy);
        loop_stop();
}

static void on_signal(int signum, void *arg)
{
        (void) coro_start(stop, NULL, 0, "stop");
}

int main(int argc, char **argv)
{
        uint64_t port = 0;
        struct err e = { 0 };

        if (argc > 1 && parse_u64(str_of(argv[1]), 65535, &port) < 0)
                return 2;
        if (loop_init(&e) < 0) {
                (void) fprintf(stderr, "mcp-toy: %s\n", err_text(&e));
                return 1;
        }
        toy_start(&toy, NULL, (unsigned) port);
        toy.check_origin = true;
        (void) printf("http://127.0.0.1:%u/mcp\n", http_server_port(toy.http));
        (void) fflush(stdout);
        (void) loop_on_signal(SIGTERM, on_signal, NULL);
        (void) loop_on_signal(SIGINT, on_signal, NULL);
        loop_run();
        loop_done();
        return 0;
}
