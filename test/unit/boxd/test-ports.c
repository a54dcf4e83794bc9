#include "boxd/ports.h"

#include "base/str.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static bool line(const char *s, int port)
{
        return port_line_listens(s, strlen(s), port);
}

static void lines(void **state)
{
        assert_true(line("   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000", 8080));
        assert_true(line("  12: 00000000000000000000000000000000:0050 00000000000000000000000000000000:0000 0A 0", 80));
        assert_false(line("   0: 0100007F:1F90 00000000:0000 01 00000000:00000000", 8080));
        assert_false(line("   0: 0100007F:1F91 00000000:0000 0A 00000000:00000000", 8080));
        assert_false(line("  sl  local_address rem_address   st tx_queue", 8080));
        assert_false(line("", 0));
        assert_false(line("x: y:FFFFFFFFF z 0A", 65535));
}

static void a_real_one(void **state)
{
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
        socklen_t n = sizeof(a);

        assert_int_equal(bind(fd, (struct sockaddr *) &a, sizeof(a)), 0);
        assert_int_equal(getsockname(fd, (struct sockaddr *) &a, &n), 0);
        assert_false(port_listens(ntohs(a.sin_port)));
        assert_int_equal(listen(fd, 1), 0);
        assert_true(port_listens(ntohs(a.sin_port)));
        close(fd);
        assert_false(port_listens(ntohs(a.sin_port)));
}

int main(void)
{
        const struct CMUnitTest tests[] = { cmocka_unit_test(lines), cmocka_unit_test(a_real_one) };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
