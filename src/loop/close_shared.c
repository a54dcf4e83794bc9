/*
 * Closing a socket whose open file description a stranger shares. The last close of a TCP socket with SO_LINGER waits
 * for what is unsent, non-blocking or not (socket(7)); the stranger can set that on its own copy and then give that
 * copy up. So the option is cleared first, and for one who wins the race in between a timer interrupts the wait.
 */
#include <signal.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"
#include "loop/stream.h"

#ifdef __linux__
#include <sys/syscall.h>

#define CLOSE_MS 20

static struct {
        timer_t id;
        bool tried, there;
} watchdog;

static void interrupt(int signum)
{
        (void) signum;
}

static void watchdog_make(void)
{
        struct sigaction sa = { .sa_handler = interrupt }; /* without SA_RESTART */
        struct sigevent ev = { .sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGRTMIN + 4 };

        watchdog.tried = true;
        ev._sigev_un._tid = (pid_t) syscall(SYS_gettid);
        if (sigaction(SIGRTMIN + 4, &sa, NULL) == 0 && timer_create(CLOCK_MONOTONIC, &ev, &watchdog.id) == 0)
                watchdog.there = true;
}

static void watchdog_set(long ms)
{
        struct itimerspec at = { .it_value.tv_nsec = ms * 1000000, .it_interval.tv_nsec = ms * 1000000 };

        if (!watchdog.tried)
                watchdog_make();
        if (watchdog.there)
                (void) timer_settime(watchdog.id, 0, &at, NULL);
}
#else
#define CLOSE_MS 0

static void watchdog_set(long ms) /* boxes are made on Linux: elsewhere nobody passes sockets */
{
        (void) ms;
}
#endif

void shared_fd_close(int fd)
{
        struct linger off = { 0 };

        watchdog_set(CLOSE_MS);
        (void) setsockopt(fd, SOL_SOCKET, SO_LINGER, &off, sizeof off);
        closep(&fd);
        watchdog_set(0);
}
