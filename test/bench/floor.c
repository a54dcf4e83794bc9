/*
 * floor: the measuring end of `make bench`, in C so that the clock sees little but what is measured. It also holds the
 * floors themselves: the least that a Linux machine must do for a box, and for a command in one.
 *
 * Each mode waits for a line on stdin, does its thing once, and prints one line whose first word is the time in
 * microseconds. So the runner can interleave several of them.
 *
 *   floor create DIR           all namespaces, overlay, pivot_root, veth, fork and exec of true; no limits, no filter
 *   floor spawn                fork and exec of `bash -c true`, and one HTTP exchange over loopback with a bare server
 *   floor run PROGRAM ARG...   fork, exec and wait for a program; prints its exit status too
 *   floor post ADDRESS PORT    reads "LENGTH\n" and so many bytes (a whole HTTP request), sends them on a connection
 * that is kept, prints "MICROSECONDS STATUS LENGTH\n" and the answer's body floor start PROGRAM ARG... starts a stdio
 * MCP server, waits for its answer to initialize, then for tools/list; prints the time to the first answer and the
 * resident KiB after the second floor call PROGRAM ARG...  keeps one stdio MCP server; each input line is a request,
 * answered by a line with its id
 */
#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <linux/sched.h>
#include <linux/veth.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

static void die(const char *what)
{
        fprintf(stderr, "floor: %s: %s\n", what, strerror(errno));
        exit(1);
}

static double now_us(void)
{
        struct timespec t;

        clock_gettime(CLOCK_MONOTONIC, &t);
        return (double) t.tv_sec * 1e6 + (double) t.tv_nsec / 1e3;
}

static int wait_line(char *line, int size)
{
        return fgets(line, size, stdin) != NULL;
}

/* --- create ------------------------------------------------------------------------------------------------- */

struct message {
        struct nlmsghdr header;
        struct ifinfomsg info;
        char attributes[512];
};

static struct rtattr *attribute(struct message *m, unsigned short type, const void *data, size_t size)
{
        struct rtattr *a = (struct rtattr *) ((char *) m + NLMSG_ALIGN(m->header.nlmsg_len));

        a->rta_type = type;
        a->rta_len = (unsigned short) RTA_LENGTH(size);
        if (size > 0)
                memcpy(RTA_DATA(a), data, size);
        m->header.nlmsg_len = NLMSG_ALIGN(m->header.nlmsg_len) + RTA_ALIGN(a->rta_len);
        return a;
}

static void close_nest(struct message *m, struct rtattr *nest)
{
        nest->rta_len = (unsigned short) ((char *) m + m->header.nlmsg_len - (char *) nest);
}

static void netlink_send(int fd, struct message *m)
{
        char answer[1024];
        struct nlmsghdr *h = (struct nlmsghdr *) answer;

        m->header.nlmsg_flags |= NLM_F_REQUEST | NLM_F_ACK;
        if (send(fd, m, m->header.nlmsg_len, 0) < 0 || recv(fd, answer, sizeof(answer), 0) < 0)
                die("netlink");
        if (h->nlmsg_type == NLMSG_ERROR && ((struct nlmsgerr *) NLMSG_DATA(h))->error != 0) {
                errno = -((struct nlmsgerr *) NLMSG_DATA(h))->error;
                die("netlink");
        }
}

/* A veth pair: NAME here and up, eth0 in the network namespace of pid. */
static void make_veth(int fd, const char *name, pid_t pid)
{
        struct message m = { .header = { .nlmsg_len = NLMSG_LENGTH(sizeof(struct ifinfomsg)),
                                         .nlmsg_type = RTM_NEWLINK,
                                         .nlmsg_flags = NLM_F_CREATE | NLM_F_EXCL } };
        struct message up = { .header = { .nlmsg_len = NLMSG_LENGTH(sizeof(struct ifinfomsg)),
                                          .nlmsg_type = RTM_NEWLINK },
                              .info = { .ifi_flags = IFF_UP, .ifi_change = IFF_UP } };
        struct ifinfomsg peer_info = { 0 };
        struct rtattr *info, *data, *peer;
        unsigned target = (unsigned) pid;

        attribute(&m, IFLA_IFNAME, name, strlen(name) + 1);
        info = attribute(&m, IFLA_LINKINFO, NULL, 0);
        attribute(&m, IFLA_INFO_KIND, "veth", 4);
        data = attribute(&m, IFLA_INFO_DATA, NULL, 0);
        peer = attribute(&m, VETH_INFO_PEER, &peer_info, sizeof(peer_info));
        attribute(&m, IFLA_IFNAME, "eth0", 5);
        attribute(&m, IFLA_NET_NS_PID, &target, sizeof(target));
        close_nest(&m, peer);
        close_nest(&m, data);
        close_nest(&m, info);
        netlink_send(fd, &m);
        attribute(&up, IFLA_IFNAME, name, strlen(name) + 1);
        netlink_send(fd, &up);
}

static void write_file(const char *path, const char *text)
{
        int fd = open(path, O_WRONLY | O_CLOEXEC);

        if (fd < 0 || write(fd, text, strlen(text)) < 0)
                die(path);
        close(fd);
}

/* In the new namespaces: the root is put together and left for good, then one command runs. */
static void inside(const char *dir, int gate, int answer)
{
        char go, options[3 * 300], root[300], usr[320];
        pid_t child;
        int status;

        if (read(gate, &go, 1) != 1)
                _exit(10);
        snprintf(root, sizeof(root), "%s/root", dir);
        snprintf(usr, sizeof(usr), "%s/usr", root);
        snprintf(options, sizeof(options), "lowerdir=%s/../skel,upperdir=%s/upper,workdir=%s/work,userxattr", dir, dir,
                 dir);
        if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 || mount("overlay", root, "overlay", 0, options) < 0)
                _exit(11);
        if (mount("/usr", usr, NULL, MS_BIND | MS_REC, NULL) < 0)
                _exit(12);
        if (chdir(root) < 0 || syscall(SYS_pivot_root, ".", ".") < 0 || umount2(".", MNT_DETACH) < 0 || chdir("/") < 0)
                _exit(13);
        child = fork();
        if (child == 0) {
                execl("/usr/bin/true", "true", (char *) NULL);
                _exit(127);
        }
        if (child < 0 || waitpid(child, &status, 0) < 0 || status != 0)
                _exit(14);
        if (write(answer, "d", 1) != 1)
                _exit(15);
        pause();
        _exit(0);
}

static double create_once(const char *base, int netlink, int n)
{
        struct clone_args args = { .flags = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC |
                                            CLONE_NEWUTS | CLONE_NEWCGROUP,
                                   .exit_signal = SIGCHLD };
        char dir[256], path[300], name[IFNAMSIZ], done;
        int gate[2], answer[2];
        double started = now_us(), took;
        pid_t pid;

        snprintf(dir, sizeof(dir), "%s/%d", base, n);
        mkdir(dir, 0755);
        for (int i = 0; i < 3; i++) {
                snprintf(path, sizeof(path), "%s/%s", dir, (const char *[]){ "root", "upper", "work" }[i]);
                mkdir(path, 0755);
        }
        if (pipe2(gate, O_CLOEXEC) < 0 || pipe2(answer, O_CLOEXEC) < 0)
                die("pipe");
        pid = (pid_t) syscall(SYS_clone3, &args, sizeof(args));
        if (pid == 0) {
                close(gate[1]);
                close(answer[0]);
                inside(dir, gate[0], answer[1]);
        }
        if (pid < 0)
                die("clone3");
        close(gate[0]);
        close(answer[1]);
        snprintf(path, sizeof(path), "/proc/%d/uid_map", (int) pid);
        write_file(path, "0 0 65536");
        snprintf(path, sizeof(path), "/proc/%d/gid_map", (int) pid);
        write_file(path, "0 0 65536");
        snprintf(name, sizeof(name), "flr%d", (int) (getpid() % 10000));
        make_veth(netlink, name, pid);
        if (write(gate[1], "g", 1) != 1)
                die("gate");
        if (read(answer[0], &done, 1) != 1) {
                int status = 0;
                waitpid(pid, &status, 0);
                fprintf(stderr, "floor: the box ended at step %d\n", WEXITSTATUS(status));
                exit(1);
        }
        took = now_us() - started;
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        close(gate[1]);
        close(answer[0]);
        return took;
}

/* The link of the box before goes away in the background; wait for that outside the measured time. */
static void settle(void)
{
        char name[IFNAMSIZ];

        snprintf(name, sizeof(name), "flr%d", (int) (getpid() % 10000));
        for (int i = 0; i < 2000 && if_nametoindex(name) != 0; i++)
                nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
}

static int mode_create(const char *base)
{
        static const char *links[][2] = {
                { "usr/bin", "bin" }, { "usr/lib", "lib" }, { "usr/lib64", "lib64" }, { "usr/sbin", "sbin" }
        };
        int netlink = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
        char path[300], line[16];

        if (netlink < 0)
                die("netlink");
        snprintf(path, sizeof(path), "%s/skel", base);
        mkdir(path, 0755);
        snprintf(path, sizeof(path), "%s/skel/usr", base);
        mkdir(path, 0755);
        for (size_t i = 0; i < sizeof(links) / sizeof(links[0]); i++) {
                snprintf(path, sizeof(path), "%s/skel/%s", base, links[i][1]);
                if (symlink(links[i][0], path) < 0 && errno != EEXIST)
                        die(path);
        }
        for (int n = 0; wait_line(line, sizeof(line)); n++) {
                settle();
                printf("%.1f\n", create_once(base, netlink, n));
                fflush(stdout);
        }
        return 0;
}

/* --- processes ------------------------------------------------------------------------------------------------ */

static int spawn_wait(char *const argv[])
{
        int status;
        pid_t pid;

        errno = posix_spawnp(&pid, argv[0], NULL, NULL, argv, environ);
        if (errno != 0)
                die(argv[0]);
        if (waitpid(pid, &status, 0) < 0)
                die("waitpid");
        return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static int mode_run(char *const argv[])
{
        char line[16];

        while (wait_line(line, sizeof(line))) {
                double started = now_us();
                int status = spawn_wait(argv);
                printf("%.1f %d\n", now_us() - started, status);
                fflush(stdout);
        }
        return 0;
}

/* --- HTTP ------------------------------------------------------------------------------------------------------ */

static int connect_to(const char *address, int port)
{
        struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons((unsigned short) port) };
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

        if (fd < 0 || inet_pton(AF_INET, address, &to.sin_addr) != 1 ||
            connect(fd, (struct sockaddr *) &to, sizeof(to)) < 0)
                die("connect");
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
        return fd;
}

static void send_all(int fd, const char *data, size_t size)
{
        while (size > 0) {
                ssize_t n = write(fd, data, size);
                if (n < 0)
                        die("write");
                data += n;
                size -= (size_t) n;
        }
}

struct reader {
        int fd;
        char *data;
        size_t size, room;
};

static void more(struct reader *r)
{
        ssize_t n;

        if (r->room - r->size < 65536) {
                r->room = r->room * 2 + 65536;
                r->data = realloc(r->data, r->room);
                if (r->data == NULL)
                        die("memory");
        }
        n = read(r->fd, r->data + r->size, r->room - r->size - 1);
        if (n <= 0)
                die("the server closed the connection");
        r->size += (size_t) n;
}

/* Reads one answer; the body is moved to the front of r->data and its length returned. */
static size_t read_answer(struct reader *r, int *ret_status)
{
        char *end, *field;
        size_t head, need;

        r->size = 0;
        do {
                more(r);
                r->data[r->size] = '\0';
                end = strstr(r->data, "\r\n\r\n");
        } while (end == NULL);
        head = (size_t) (end - r->data) + 4;
        *ret_status = (int) strtol(r->data + 9, NULL, 10);
        for (char *c = r->data; c < end; c++)
                *c = (char) tolower((unsigned char) *c);
        *end = '\0';
        field = strstr(r->data, "\r\ncontent-length:");
        if (field != NULL) {
                need = strtoul(field + 17, NULL, 10);
                while (r->size < head + need)
                        more(r);
                memmove(r->data, r->data + head, need);
                return need;
        }
        if (strstr(r->data, "\r\ntransfer-encoding: chunked") == NULL)
                return 0;
        size_t at = head, body = 0;
        for (;;) {
                char *line;
                while (r->data[r->size] = '\0', (line = strstr(r->data + at, "\r\n")) == NULL)
                        more(r);
                need = strtoul(r->data + at, NULL, 16);
                at = (size_t) (line - r->data) + 2;
                while (r->size < at + need + 2)
                        more(r);
                if (need == 0)
                        break;
                memmove(r->data + body, r->data + at, need); /* body is behind at: the rest stays where it is */
                body += need;
                at += need + 2;
        }
        return body;
}

static int mode_post(const char *address, const char *port)
{
        struct reader r = { .fd = connect_to(address, (int) strtol(port, NULL, 10)) };
        char line[32];

        while (wait_line(line, sizeof(line))) {
                size_t size = strtoul(line, NULL, 10), body;
                char *request = malloc(size);
                double started;
                int status;

                if (request == NULL || fread(request, 1, size, stdin) != size)
                        die("request");
                started = now_us();
                send_all(r.fd, request, size);
                body = read_answer(&r, &status);
                printf("%.1f %d %zu\n", now_us() - started, status, body);
                fwrite(r.data, 1, body, stdout);
                fflush(stdout);
                free(request);
        }
        free(r.data);
        return 0;
}

/* The least server there is: reads a head and a body of known length, answers the same bytes every time. */
static void bare_server(int listener, size_t request_size)
{
        static const char answer[] =
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 160\r\n\r\n"
                "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"{}\"}],"
                "\"structuredContent\":{\"exitCode\":0,\"stdout\":\"\",\"stderr\":\"\",\"durationMs\":1,  "
                "\"truncated\":  false}}}  ";
        char buffer[4096];
        int fd = accept(listener, NULL, NULL), one = 1;

        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
        for (size_t got = 0;;) {
                ssize_t n = read(fd, buffer, sizeof(buffer));
                if (n <= 0)
                        _exit(0);
                got += (size_t) n;
                if (got >= request_size) {
                        got = 0;
                        send_all(fd, answer, sizeof(answer) - 1);
                }
        }
}

static int mode_spawn(void)
{
        struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
        socklen_t size = sizeof(at);
        int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), status;
        char *const argv[] = { "bash", "-c", "true", NULL };
        char request[512], line[16];
        struct reader r = { 0 };
        pid_t server;
        int n;

        n = snprintf(request, sizeof(request),
                     "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                     "Accept: application/json, text/event-stream\r\nContent-Length: 100\r\n\r\n%100s",
                     "{}");
        if (listener < 0 || bind(listener, (struct sockaddr *) &at, size) < 0 || listen(listener, 1) < 0 ||
            getsockname(listener, (struct sockaddr *) &at, &size) < 0)
                die("listen");
        server = fork();
        if (server == 0)
                bare_server(listener, (size_t) n);
        r.fd = connect_to("127.0.0.1", ntohs(at.sin_port));
        while (wait_line(line, sizeof(line))) {
                double started = now_us();
                send_all(r.fd, request, (size_t) n);
                read_answer(&r, &status);
                if (spawn_wait(argv) != 0)
                        die("bash");
                printf("%.1f\n", now_us() - started);
                fflush(stdout);
        }
        kill(server, SIGKILL);
        waitpid(server, NULL, 0);
        free(r.data);
        return 0;
}

/* --- stdio MCP servers ------------------------------------------------------------------------------------------ */

struct stdio_server {
        pid_t pid;
        int in;
        FILE *out;
};

static struct stdio_server start_server(char *const argv[])
{
        posix_spawn_file_actions_t actions;
        struct stdio_server s;
        int in[2], out[2];

        if (pipe2(in, O_CLOEXEC) < 0 || pipe2(out, O_CLOEXEC) < 0)
                die("pipe");
        posix_spawn_file_actions_init(&actions);
        posix_spawn_file_actions_adddup2(&actions, in[0], 0);
        posix_spawn_file_actions_adddup2(&actions, out[1], 1);
        posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
        errno = posix_spawnp(&s.pid, argv[0], &actions, NULL, argv, environ);
        if (errno != 0)
                die(argv[0]);
        posix_spawn_file_actions_destroy(&actions);
        close(in[0]);
        close(out[1]);
        s.in = in[1];
        s.out = fdopen(out[0], "r");
        return s;
}

static void end_server(struct stdio_server *s)
{
        close(s->in);
        fclose(s->out);
        kill(s->pid, SIGKILL);
        waitpid(s->pid, NULL, 0);
}

/* Waits for the line that answers id. */
static void wait_answer(struct stdio_server *s, const char *id, char **line, size_t *room)
{
        char mark[64];

        snprintf(mark, sizeof(mark), "\"id\":%s", id);
        do {
                if (getline(line, room, s->out) < 0)
                        die("the program ended");
        } while (strstr(*line, mark) == NULL);
}

static long resident_kib(pid_t pid)
{
        char path[64], line[256];
        long kib = -1;
        FILE *f;

        snprintf(path, sizeof(path), "/proc/%d/status", (int) pid);
        f = fopen(path, "r");
        while (f != NULL && fgets(line, sizeof(line), f) != NULL)
                if (sscanf(line, "VmRSS: %ld", &kib) == 1)
                        break;
        if (f != NULL)
                fclose(f);
        return kib;
}

static const char initialize[] =
        "{\"jsonrpc\":\"2.0\",\"id\":9001,\"method\":\"initialize\",\"params\":{\"protocolVersion\":\"2025-11-25\","
        "\"capabilities\":{},\"clientInfo\":{\"name\":\"floor\",\"version\":\"1\"}}}\n";
static const char initialized[] = "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n";
static const char list[] = "{\"jsonrpc\":\"2.0\",\"id\":9002,\"method\":\"tools/list\"}\n";

static int mode_start(char *const argv[])
{
        char line[16], *answer = NULL;
        size_t room = 0;

        while (wait_line(line, sizeof(line))) {
                double started = now_us(), took;
                struct stdio_server s = start_server(argv);

                send_all(s.in, initialize, sizeof(initialize) - 1);
                wait_answer(&s, "9001", &answer, &room);
                took = now_us() - started;
                send_all(s.in, initialized, sizeof(initialized) - 1);
                send_all(s.in, list, sizeof(list) - 1);
                wait_answer(&s, "9002", &answer, &room);
                printf("%.1f %ld\n", took, resident_kib(s.pid));
                fflush(stdout);
                end_server(&s);
        }
        free(answer);
        return 0;
}

static int mode_call(char *const argv[])
{
        struct stdio_server s = start_server(argv);
        char *line = NULL, *answer = NULL;
        size_t room = 0, answer_room = 0;
        ssize_t n;

        send_all(s.in, initialize, sizeof(initialize) - 1);
        wait_answer(&s, "9001", &answer, &answer_room);
        send_all(s.in, initialized, sizeof(initialized) - 1);
        while ((n = getline(&line, &room, stdin)) > 0) {
                char *id = strstr(line, "\"id\":"), number[16] = "";
                double started;

                if (id != NULL)
                        (void) sscanf(id + 5, " %15[0-9]", number);
                started = now_us();
                send_all(s.in, line, (size_t) n);
                wait_answer(&s, number, &answer, &answer_room);
                printf("%.1f %zu\n", now_us() - started, strlen(answer));
                fflush(stdout);
        }
        end_server(&s);
        free(line);
        free(answer);
        return 0;
}

int main(int argc, char **argv)
{
        const char *mode = argc > 1 ? argv[1] : "";

        signal(SIGPIPE, SIG_IGN);
        if (strcmp(mode, "create") == 0 && argc == 3)
                return mode_create(argv[2]);
        if (strcmp(mode, "spawn") == 0 && argc == 2)
                return mode_spawn();
        if (strcmp(mode, "run") == 0 && argc > 2)
                return mode_run(argv + 2);
        if (strcmp(mode, "post") == 0 && argc == 4)
                return mode_post(argv[2], argv[3]);
        if (strcmp(mode, "start") == 0 && argc > 2)
                return mode_start(argv + 2);
        if (strcmp(mode, "call") == 0 && argc > 2)
                return mode_call(argv + 2);
        fprintf(stderr, "usage: floor create DIR | spawn | run ARGV | post ADDRESS PORT | start ARGV | call ARGV\n");
        return 2;
}
