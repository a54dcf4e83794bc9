/* boxd: PID 1 of a box. Descriptor 3 is its listening socket; descriptor 4, when open, wants a byte when it is ready.
 */
#include "boxd/pid1.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int complain(const char *s)
{
        return write(STDERR_FILENO, s, strlen(s)) < 0 ? 2 : 1;
}

int main(int argc, char **argv)
{
        int listening = 0;
        socklen_t n = sizeof(listening);

        if (argc == 2 && strcmp(argv[1], "--version") == 0)
                return complain("boxd " PSBX_VERSION "\n") == 1 ? 0 : 2;
        if (getsockopt(3, SOL_SOCKET, SO_ACCEPTCONN, &listening, &n) < 0 || !listening)
                return complain("boxd: descriptor 3 is no listening socket\n");
        if (getpid() != 1)
                return complain("boxd: must be process 1 of a pid namespace\n");
        pid1_main(3, fcntl(4, F_GETFD) < 0 ? -1 : 4);
}
