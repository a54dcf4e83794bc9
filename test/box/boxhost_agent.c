/*
 * A stand-in for boxd in the tests of boxhost alone: says ready on descriptor 4, then runs what each connection on
 * descriptor 3 sends (until the writing side is closed) with sh and answers output, then "\n<exit code>". Static, PID 1
 * of a box.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static void serve_one(int fd)
{
        static char command[1 << 16];
        size_t n = 0;
        ssize_t r;
        int status;
        char tail[16];
        pid_t pid;

        while (n + 1 < sizeof(command) && (r = read(fd, command + n, sizeof(command) - 1 - n)) > 0)
                n += (size_t) r;
        command[n] = '\0';
        pid = fork();
        if (pid == 0) {
                signal(SIGCHLD, SIG_DFL);
                if (dup2(fd, 1) < 0 || dup2(fd, 2) < 0)
                        _exit(126);
                close(fd);
                setsid();
                execl("/bin/sh", "sh", "-c", command, (char *) NULL);
                _exit(127);
        }
        waitpid(pid, &status, 0);
        r = snprintf(tail, sizeof(tail), "\n%d", WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
        if (write(fd, tail, (size_t) r) < 0)
                _exit(1);
        _exit(0);
}

int main(void)
{
        signal(SIGCHLD, SIG_IGN); /* orphans are reaped by the kernel */
        if (write(4, "R", 1) == 1)
                close(4);
        for (;;) {
                int fd = accept(3, NULL, NULL);
                if (fd < 0)
                        continue;
                if (fork() == 0) {
                        close(3);
                        signal(SIGCHLD, SIG_DFL);
                        serve_one(fd);
                }
                close(fd);
        }
}
