/* parallelsandbox: the server and its admin commands. */
#include "cli.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const struct command commands[] = {
        { "up", "[--state DIR] [--listen ADDR] [--json]",
          "start a server in the background, a first box in it, and say how to connect an agent", cmd_up },
        { "down", "[--state DIR] [--purge]", "stop that server and undo what it changed on this machine", cmd_down },
        { "status", "[--state DIR] [--json]", "what runs", cmd_status },
        { "serve", "--state DIR [--listen ADDR] [--boxhost SOCKET] [--log-level L] …", "run a server in the foreground",
          cmd_serve },
        { "doctor", "[--json]", "what this machine lacks, and what that costs", cmd_doctor },
        { "keys", "add NAME | list | revoke ID [--state DIR] [--json]", "API keys", cmd_keys },
        { "image",
          "build RECIPE [--name NAME] [--packages FILE] [--keep-default] | list | rm NAME | default NAME [--state DIR] "
          "[--json]",
          "the images that boxes start from: `image build debian` makes the one to work with", cmd_image },
        { "users", "invite [NOTE] | list | remove LOGIN [--first] [--new-account NAME] [--state DIR] [--json]",
          "the people who may sign in", cmd_users },
};

static void usage(FILE *to)
{
        (void) fprintf(to, "ParallelSandbox " PSBX_VERSION ": parallel Linux boxes for coding agents\n\n");
        for (size_t i = 0; i < ARRAY_LEN(commands); i++)
                (void) fprintf(to, "  parallelsandbox %s %s\n        %s\n", commands[i].name, commands[i].args,
                               commands[i].help);
        (void) fprintf(to, "\nEvery command takes --help. Exit codes: 0 done, 1 failed, 2 wrong usage.\n");
}

int main(int argc, char **argv)
{
        /* One thread of the pool waits for boxhost's connection; leave enough for files and names. */
        (void) setenv("UV_THREADPOOL_SIZE", "8", 0);
        log_setup("parallelsandbox", LOG_LEVEL_INFO);
        if (argc < 2) {
                usage(stderr);
                return EXIT_USAGE;
        }
        if (cstr_eq(argv[1], "--help") || cstr_eq(argv[1], "-h") || cstr_eq(argv[1], "help")) {
                usage(stdout);
                return 0;
        }
        if (cstr_eq(argv[1], "--version")) {
                (void) puts(PSBX_VERSION);
                return 0;
        }
        for (size_t i = 0; i < ARRAY_LEN(commands); i++)
                if (cstr_eq(argv[1], commands[i].name)) {
                        for (int j = 2; j < argc; j++)
                                if (cstr_eq(argv[j], "--help")) {
                                        (void) printf("parallelsandbox %s %s\n  %s\n", commands[i].name,
                                                      commands[i].args, commands[i].help);
                                        return 0;
                                }
                        return commands[i].run(argc - 1, argv + 1);
                }
        (void) fprintf(stderr, "parallelsandbox: there is no command \"%s\"\n\n", argv[1]);
        usage(stderr);
        return EXIT_USAGE;
}
