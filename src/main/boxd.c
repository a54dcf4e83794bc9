/* boxd: PID 1 of a box. Descriptor 3 is its listening socket; descriptor 4, when open, wants a byte when it is ready.
 */
#include "boxd/launch.h"
#include "boxd/pid1.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const char usage[] = "boxd: process 1 of a box; boxhost starts it with a listening socket as descriptor 3\n";

static int complain(const char *s)
{
        return write(STDERR_FILENO, s, strlen(s)) < 0 ? 2 : 1;
}

static int say(const char *s)
{
        return write(STDOUT_FILENO, s, strlen(s)) < 0 ? 2 : 0;
}

/* In a box this program is also found as /run/boxd/launch. */
static bool is_launcher(const char *name)
{
        const char *slash = strrchr(name, '/');

        return strcmp(slash ? slash + 1 : name, "launch") == 0;
}

int main(int argc, char **argv)
{
        int listening = 0;
        socklen_t n = sizeof(listening);

        if (argc > 0 && is_launcher(argv[0]))
                return launch_client(argv + 1);
        if (argc == 2 && strcmp(argv[1], "--version") == 0)
                return say("boxd " PSBX_VERSION "\n");
        if (argc == 2 && strcmp(argv[1], "--help") == 0)
                return say(usage);
        if (getsockopt(3, SOL_SOCKET, SO_ACCEPTCONN, &listening, &n) < 0 || !listening)
                return complain("boxd: descriptor 3 is no listening socket\n");
        if (getpid() != 1)
                return complain("boxd: must be process 1 of a pid namespace\n");
        pid1_main(3, fcntl(4, F_GETFD) < 0 ? -1 : 4);
}
