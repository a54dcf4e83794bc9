/* The strict codec: every row of reference/c-stack.md §1.2 and what RFC 9112 adds, fed whole, byte by byte and cut
 * anywhere. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>

#include "../../fuzz/h1_drive.h"

#define H "Host: a\r\n"
#define GET "GET / HTTP/1.1\r\n" H
#define POST "POST / HTTP/1.1\r\n" H
#define CHUNKED POST "Transfer-Encoding: chunked\r\n\r\n"

struct row {
        const char *name;
        struct str in;
        const char *expect; /* a part of the outcome */
};
#define ROW(name, in, expect)                        \
        {                                            \
                name, { in, sizeof(in) - 1 }, expect \
        }

static char *outcome(enum drive_kind kind, struct str in, size_t first, size_t step)
{
        struct buf out = BUF_MAX(1 << 20);

        drive(kind, in.p, in.n, first, step, &out);
        return buf_steal(&out);
}

static void check_row(enum drive_kind kind, const struct row *row)
{
        _cleanup_free_ char *whole = outcome(kind, row->in, row->in.n, 1);
        _cleanup_free_ char *bytes = outcome(kind, row->in, 1, 1);

        if (!strstr(whole, row->expect))
                fail_msg("%s: expected %s, got %s", row->name, row->expect, whole);
        if (strcmp(whole, bytes) != 0)
                fail_msg("%s: byte by byte: %s instead of %s", row->name, bytes, whole);
        for (size_t cut = 1; cut < row->in.n; cut++) {
                _cleanup_free_ char *split = outcome(kind, row->in, cut, row->in.n);

                if (strcmp(whole, split) != 0)
                        fail_msg("%s: cut at %zu: %s instead of %s", row->name, cut, split, whole);
        }
}

static void check_rows(enum drive_kind kind, const struct row *rows, size_t n)
{
        for (size_t i = 0; i < n; i++)
                check_row(kind, &rows[i]);
}
#define CHECK(kind, rows) check_rows(kind, rows, ARRAY_LEN(rows))

/* c-stack.md §1.2, in its order. */
static void test_table(void **state)
{
        static const struct row rows[] = {
                ROW("CL and TE", POST "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
                    "refused 400 both"),
                ROW("two CL, different", POST "Content-Length: 3\r\nContent-Length: 4\r\n\r\nabc", "refused 400"),
                ROW("two CL, equal", POST "Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc", "refused 400"),
                ROW("xchunked", POST "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", "refused 501"),
                ROW("TE twice", POST "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n",
                    "refused 400"),
                ROW("CL +3", POST "Content-Length: +3\r\n\r\nabc", "refused 400"),
                ROW("space before colon", "GET / HTTP/1.1\r\nHost : a\r\n\r\n", "refused 400 a malformed header name"),
                ROW("folded", GET "X: a\r\n b\r\n\r\n", "refused 400 a folded"),
                ROW("NUL in a value", GET "X: a\0b\r\n\r\n", "refused 400 a control"),
                ROW("bare LF", "GET / HTTP/1.1\nHost: a\n\n", "refused 400 a line ends"),
                ROW("two Host", GET H "\r\n", "refused 400"),
                ROW("chunk data without CRLF", CHUNKED "3\r\nabc0\r\n\r\n", "body=3 sum=17862 malformed"),
                ROW("LF-only chunk lines", CHUNKED "3\nabc\n0\n\n", "body=0 sum=0 malformed"),
                ROW("HTTP/1.9", "GET / HTTP/1.9\r\n" H "\r\n", "refused 505"),
        };

        CHECK(DRIVE_REQUEST, rows);
}

static void test_framing(void **state)
{
        static const struct row rows[] = {
                ROW("length", POST "Content-Length: 3\r\n\r\nabc", "body=3 sum=17862"),
                ROW("length, leading zeros", POST "Content-Length: 003\r\n\r\nabc", "length=3 "),
                ROW("length 0", POST "Content-Length: 0\r\n\r\n" GET "\r\n", "more at=74"),
                ROW("empty", POST "Content-Length:\r\n\r\n", "refused 400"),
                ROW("list", POST "Content-Length: 3, 3\r\n\r\nabc", "refused 400"),
                ROW("minus", POST "Content-Length: -3\r\n\r\nabc", "refused 400"),
                ROW("inner space", POST "Content-Length: 3 4\r\n\r\nabc", "refused 400"),
                ROW("hex", POST "Content-Length: 0x3\r\n\r\nabc", "refused 400"),
                ROW("2^63", POST "Content-Length: 9223372036854775808\r\n\r\n", "refused 413"),
                ROW("2^64", POST "Content-Length: 18446744073709551616\r\n\r\n", "refused 413"),
                ROW("2^63-1", POST "Content-Length: 9223372036854775807\r\n\r\n", "length=9223372036854775807"),
                ROW("TE empty", POST "Transfer-Encoding:\r\n\r\n", "refused 400"),
                ROW("TE in capitals", POST "Transfer-Encoding: CHUNKED\r\n\r\n0\r\n\r\n", "framing=2"),
                ROW("TE gzip, chunked", POST "Transfer-Encoding: gzip, chunked\r\n\r\n", "refused 501"),
                ROW("TE chunked, chunked", POST "Transfer-Encoding: chunked, chunked\r\n\r\n", "refused 501"),
                ROW("TE identity", POST "Transfer-Encoding: identity\r\n\r\n", "refused 501"),
                ROW("TE quoted", POST "Transfer-Encoding: \"chunked\"\r\n\r\n", "refused 501"),
                ROW("TE with VT", POST "Transfer-Encoding: \vchunked\r\n\r\n", "refused 400 a control"),
                ROW("TE with parameter", POST "Transfer-Encoding: chunked;a=b\r\n\r\n", "refused 501"),
                ROW("TE in 1.0", "POST / HTTP/1.0\r\n" H "Transfer-Encoding: chunked\r\n\r\n", "refused 400"),
                ROW("GET with a body", GET "Content-Length: 3\r\n\r\nabc", "body=3"),
                ROW("CONNECT with a body", "CONNECT a:1 HTTP/1.1\r\n" H "Content-Length: 1\r\n\r\na", "refused 400"),
                ROW("no body", GET "\r\n", "framing=0"),
        };

        CHECK(DRIVE_REQUEST, rows);
}

static void test_lines(void **state)
{
        static const struct row rows[] = {
                ROW("plain", GET "\r\n", "method=[GET] target=[/] host=[a] name=[Host] value=[a] 1.1"),
                ROW("white space around a value", GET "X: \t a b \t\r\n\r\n", "name=[X] value=[a b]"),
                ROW("empty value", GET "X:\r\n\r\n", "name=[X] value=[]"),
                ROW("obs-text in a value", GET "X: \xff\xe4\r\n\r\n", "value=[\xff\xe4]"),
                ROW("obs-text in a name", GET "X\xff: a\r\n\r\n", "refused 400"),
                ROW("obs-text in the target", "GET /\xff HTTP/1.1\r\n" H "\r\n", "refused 400"),
                ROW("one empty line first", "\r\n" GET "\r\n", "method=[GET]"),
                ROW("two empty lines first", "\r\n\r\n" GET "\r\n", "refused 400 an empty line"),
                ROW("LF first", "\n" GET "\r\n", "refused 400 a line ends"),
                ROW("bare CR", GET "X: a\rb\r\n\r\n", "refused 400 CR"),
                ROW("CR at the start", "\rGET / HTTP/1.1\r\n" H "\r\n", "refused 400 CR"),
                ROW("DEL", GET "X: a\x7f\r\n\r\n", "refused 400 a control"),
                ROW("ESC", GET "X: a\x1b[0m\r\n\r\n", "refused 400 a control"),
                ROW("LF ends the head", GET "X: a\r\n\n", "refused 400 a line ends"),
                ROW("first header folded", "GET / HTTP/1.1\r\n Host: a\r\n\r\n", "refused 400 a folded"),
                ROW("line without colon", GET "abc\r\n\r\n", "refused 400 a malformed header name"),
                ROW("no name", GET ": a\r\n\r\n", "refused 400 an empty"),
                ROW("space in a name", GET "X Y: a\r\n\r\n", "refused 400"),
                ROW("tab before colon", GET "X\t: a\r\n\r\n", "refused 400"),
                ROW("bracket in a name", GET "X[: a\r\n\r\n", "refused 400"),
                ROW("only white space", GET " \r\n\r\n", "refused 400 a folded"),
                ROW("tab between", "GET\t/ HTTP/1.1\r\n" H "\r\n", "refused 400"),
                ROW("two spaces", "GET  / HTTP/1.1\r\n" H "\r\n", "refused 400 an empty"),
                ROW("trailing space", "GET / HTTP/1.1 \r\n" H "\r\n", "refused 400"),
                ROW("leading space", " GET / HTTP/1.1\r\n" H "\r\n", "refused 400"),
                ROW("space in the target", "GET /a b HTTP/1.1\r\n" H "\r\n", "refused 400"),
                ROW("HTTP/0.9", "GET /\r\n\r\n", "refused 400"),
                ROW("HTTP/2.0", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "refused 505"),
                ROW("HTTP/1.2", "GET / HTTP/1.2\r\n" H "\r\n", "refused 505"),
                ROW("HTTP/0.9 named", "GET / HTTP/0.9\r\n" H "\r\n", "refused 505"),
                ROW("http/1.1", "GET / http/1.1\r\n" H "\r\n", "refused 400"),
                ROW("HTTP/1.10", "GET / HTTP/1.10\r\n" H "\r\n", "refused 400"),
                ROW("HTTP/01.1", "GET / HTTP/01.1\r\n" H "\r\n", "refused 400"),
                ROW("HTTP 1.1", "GET / HTTP 1.1\r\n" H "\r\n", "refused 400"),
                ROW("no method", " / HTTP/1.1\r\n" H "\r\n", "refused 400"),
                ROW("method with a bracket", "G(T / HTTP/1.1\r\n" H "\r\n", "refused 400"),
                ROW("long method", "ABCDEFGHIJKLMNOPQRSTUVWXYZABCDEFG / HTTP/1.1\r\n" H "\r\n", "refused 501"),
                ROW("other method", "BREW /pot HTTP/1.1\r\n" H "\r\n", "method=[BREW]"),
                ROW("TLS hello", "\x16\x03\x01\x02\x00\x01", "refused 400"),
        };

        CHECK(DRIVE_REQUEST, rows);
}

static void test_host_and_target(void **state)
{
        static const struct row rows[] = {
                ROW("no Host", "GET / HTTP/1.1\r\n\r\n", "refused 400"),
                ROW("no Host in 1.0", "GET / HTTP/1.0\r\n\r\n", "1.0 framing=0 length=0 keep=0"),
                ROW("two Host in 1.0", "GET / HTTP/1.0\r\n" H H "\r\n", "refused 400"),
                ROW("empty Host", "GET / HTTP/1.1\r\nHost:\r\n\r\n", "refused 400"),
                ROW("Host with port", "GET / HTTP/1.1\r\nHost: a-b.c_d:65535\r\n\r\n", "host=[a-b.c_d:65535]"),
                ROW("port too large", "GET / HTTP/1.1\r\nHost: a:65536\r\n\r\n", "refused 400"),
                ROW("port with sign", "GET / HTTP/1.1\r\nHost: a:+1\r\n\r\n", "refused 400"),
                ROW("port empty", "GET / HTTP/1.1\r\nHost: a:\r\n\r\n", "refused 400"),
                ROW("two ports", "GET / HTTP/1.1\r\nHost: a:1:2\r\n\r\n", "refused 400"),
                ROW("IPv6", "GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n", "host=[[::1]:80]"),
                ROW("IPv6 open", "GET / HTTP/1.1\r\nHost: [::1\r\n\r\n", "refused 400"),
                ROW("IPv6 zone", "GET / HTTP/1.1\r\nHost: [fe80::1%25lo]\r\n\r\n", "refused 400"),
                ROW("bare IPv6", "GET / HTTP/1.1\r\nHost: ::1\r\n\r\n", "refused 400"),
                ROW("at sign", "GET / HTTP/1.1\r\nHost: a@b\r\n\r\n", "refused 400"),
                ROW("slash", "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", "refused 400"),
                ROW("two names", "GET / HTTP/1.1\r\nHost: a, b\r\n\r\n", "refused 400"),
                ROW("space", "GET / HTTP/1.1\r\nHost: a b\r\n\r\n", "refused 400"),
                ROW("escape", "GET / HTTP/1.1\r\nHost: a%41\r\n\r\n", "refused 400"),
                ROW("absolute form", "GET http://a/x?y HTTP/1.1\r\n" H "\r\n", "target=[http://a/x?y]"),
                ROW("absolute form, https, case", "GET HTTPS://A/x HTTP/1.1\r\n" H "\r\n", "target=[HTTPS://A/x]"),
                ROW("absolute form, no path", "GET http://a HTTP/1.1\r\n" H "\r\n", "target=[http://a]"),
                ROW("absolute form, other host", "GET http://b/ HTTP/1.1\r\n" H "\r\n", "refused 400"),
                ROW("absolute form, userinfo", "GET http://u@a/ HTTP/1.1\r\n" H "\r\n", "refused 400"),
                ROW("absolute form, no host", "GET http:///x HTTP/1.1\r\n" H "\r\n", "refused 400"),
                ROW("other scheme", "GET ftp://a/ HTTP/1.1\r\n" H "\r\n", "refused 400"),
                ROW("authority form", "GET a:80 HTTP/1.1\r\n" H "\r\n", "refused 400"),
                ROW("CONNECT", "CONNECT a:80 HTTP/1.1\r\n" H "\r\n", "method=[CONNECT] target=[a:80]"),
                ROW("CONNECT without port", "CONNECT a HTTP/1.1\r\n" H "\r\n", "refused 400"),
                ROW("CONNECT with path", "CONNECT /a HTTP/1.1\r\n" H "\r\n", "refused 400"),
                ROW("OPTIONS *", "OPTIONS * HTTP/1.1\r\n" H "\r\n", "target=[*]"),
                ROW("GET *", "GET * HTTP/1.1\r\n" H "\r\n", "refused 400"),
                ROW("fragment", "GET /a#b HTTP/1.1\r\n" H "\r\n", "refused 400"),
                ROW("quote", "GET /a\"b HTTP/1.1\r\n" H "\r\n", "refused 400"),
                ROW("browser query", "GET /?a={b}|[c]^`\\ HTTP/1.1\r\n" H "\r\n", "target=[/?a={b}|[c]^`\\]"),
        };

        CHECK(DRIVE_REQUEST, rows);
}

static void test_connection(void **state)
{
        static const struct row rows[] = {
                ROW("1.1", GET "\r\n", "keep=1"),
                ROW("close", GET "Connection: foo, Close\r\n\r\n", "keep=0"),
                ROW("close wins", GET "Connection: keep-alive\r\nConnection: close\r\n\r\n", "keep=0"),
                ROW("1.0", "GET / HTTP/1.0\r\n\r\n", "keep=0"),
                ROW("1.0 keep-alive", "GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", "keep=1"),
                ROW("expect", POST "Expect: 100-Continue\r\nContent-Length: 1\r\n\r\na", "expect=1"),
                ROW("expect without a body", GET "Expect: 100-continue\r\n\r\n", "expect=0"),
                ROW("expect in 1.0", "POST / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\na",
                    "expect=0"),
                ROW("expect more", POST "Expect: magic\r\n\r\n", "refused 417"),
                ROW("expect twice", POST "Expect: 100-continue\r\nExpect: 100-continue\r\n\r\n", "refused 417"),
                ROW("upgrade", GET "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n", "upgrade=1"),
                ROW("upgrade not listed", GET "Upgrade: websocket\r\n\r\n", "upgrade=0"),
                ROW("upgrade in 1.0", "GET / HTTP/1.0\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n", "upgrade=0"),
                ROW("pipelined", POST "Content-Length: 1\r\n\r\na" GET "\r\n", "body=1 sum=61 at=48\nmethod=[GET]"),
        };

        CHECK(DRIVE_REQUEST, rows);
}

static void test_chunks(void **state)
{
        static const struct row rows[] = {
                ROW("two chunks", "1\r\na\r\n2\r\nbc\r\n0\r\n\r\nrest", "body=3 sum=17862 at=18"),
                ROW("capital hex", "A\r\n0123456789\r\n0\r\n\r\n", "body=10"),
                ROW("leading zeros", "0003\r\nabc\r\n000\r\n\r\n", "body=3 sum=17862 at"),
                ROW("extension", "3;a=\"b c\";d\r\nabc\r\n0;x\r\n\r\n", "body=3 sum=17862 at"),
                ROW("extension with a control byte", "3;a\x01\r\nabc\r\n", "malformed"),
                ROW("extension with bare LF", "3;a\nabc\r\n", "malformed"),
                ROW("extension with bare CR", "3;a\rb\r\nabc\r\n", "malformed"),
                ROW("space before CRLF", "3 \r\nabc\r\n", "malformed"),
                ROW("space before extension", "3 ;a\r\nabc\r\n", "malformed"),
                ROW("leading space", " 3\r\nabc\r\n", "malformed"),
                ROW("no size", "\r\nabc\r\n", "malformed"),
                ROW("only an extension", ";a\r\nabc\r\n", "malformed"),
                ROW("0x", "0x3\r\nabc\r\n", "malformed"),
                ROW("minus", "-3\r\nabc\r\n", "malformed"),
                ROW("largest", "7fffffffffffffff\r\nabc", "body=3 sum=17862 more"),
                ROW("2^63", "8000000000000000\r\nabc", "malformed"),
                ROW("2^64+3", "10000000000000003\r\nabc", "malformed"),
                ROW("17 zeros", "00000000000000000\r\n", "malformed"),
                ROW("data too long", "3\r\nabcd\r\n0\r\n\r\n", "body=3 sum=17862 malformed"),
                ROW("CR only after data", "3\r\nabc\r0\r\n\r\n", "malformed"),
                ROW("LF only after data", "3\r\nabc\n0\r\n\r\n", "malformed"),
                ROW("trailers", "0\r\nA: b\r\nC:\r\n\r\nX", "body=0 sum=0 at=15"),
                ROW("trailer without colon", "0\r\nA\r\n\r\n", "malformed"),
                ROW("trailer with space before colon", "0\r\nA : b\r\n\r\n", "malformed"),
                ROW("trailer folded", "0\r\nA: b\r\n c\r\n\r\n", "malformed"),
                ROW("trailer ends with LF", "0\r\nA: b\n\r\n", "malformed"),
                ROW("trailer with NUL", "0\r\nA: \0\r\n\r\n", "malformed"),
                ROW("end with LF", "0\r\n\n", "malformed"),
                ROW("end with CR and more", "0\r\n\rX", "malformed"),
                ROW("cut in the size", "3", "body=0 sum=0 more"),
        };

        CHECK(DRIVE_CHUNKED, rows);
}

static void test_responses(void **state)
{
        static const struct row rows[] = {
                ROW("length", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", "status=200 reason=[OK]"),
                ROW("empty reason", "HTTP/1.1 200 \r\nContent-Length: 0\r\n\r\n", "status=200 reason=[]"),
                ROW("no space after the code", "HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", "refused"),
                ROW("reason with spaces", "HTTP/1.1 404 Not \xe4 Found\r\nContent-Length: 0\r\n\r\n",
                    "[Not \xe4 Found]"),
                ROW("until close", "HTTP/1.1 200 OK\r\n\r\nabc", "keep=0 expect=0 upgrade=0\nbody=3 sum=17862 more"),
                ROW("chunked", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", "body=3"),
                ROW("1xx then 200", "HTTP/1.1 103 Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
                    "sum=0 at=31\nstatus=200"),
                ROW("204", "HTTP/1.1 204 No Content\r\n\r\n", "framing=0"),
                ROW("204 with a length", "HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n", "framing=0 length=5"),
                ROW("304 with a length", "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n",
                    "framing=0 length=5"),
                ROW("101", "HTTP/1.1 101 S\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n", "upgrade=1"),
                ROW("CL and TE", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n",
                    "refused"),
                ROW("two CL", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nContent-Length: 0\r\n\r\n", "refused"),
                ROW("TE gzip", "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", "refused"),
                ROW("TE in 1.0", "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "refused"),
                ROW("1.0", "HTTP/1.0 200 OK\r\n\r\nabc", "1.0 framing=3"),
                ROW("code of two digits", "HTTP/1.1 20 OK\r\n\r\n", "refused"),
                ROW("code of four digits", "HTTP/1.1 2000 OK\r\n\r\n", "refused"),
                ROW("code below 100", "HTTP/1.1 099 OK\r\n\r\n", "refused"),
                ROW("code 999", "HTTP/1.1 999 X\r\nContent-Length: 0\r\n\r\n", "status=999"),
                ROW("ICY", "ICY 200 OK\r\n\r\n", "refused"),
                ROW("HTTP/2", "HTTP/2 200 OK\r\n\r\n", "refused"),
                ROW("two spaces", "HTTP/1.1  200 OK\r\n\r\n", "refused"),
                ROW("LF", "HTTP/1.1 200 OK\nContent-Length: 0\n\n", "refused"),
                ROW("folded", "HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n", "refused"),
                ROW("empty line first", "\r\nHTTP/1.1 200 OK\r\n\r\n", "refused"),
        };
        static const struct row head[] = {
                ROW("HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n",
                    "framing=0 length=3 keep=1 expect=0 upgrade=0\nbody=0 sum=0 at=38\nstatus=200"),
                ROW("HEAD chunked", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "framing=0"),
        };

        CHECK(DRIVE_RESPONSE, rows);
        CHECK(DRIVE_RESPONSE_TO_HEAD, head);
}

/* A head whose parts are repeated to reach a limit; whole and in steps (a cut everywhere would take minutes here). */
static void check_long(const char *prefix, const char *fill, size_t times, const char *suffix, const char *expect)
{
        struct buf in = BUF_MAX(1 << 20);

        assert_int_equal(buf_adds(&in, prefix), 0);
        for (size_t i = 0; i < times; i++)
                assert_int_equal(buf_adds(&in, fill), 0);
        assert_int_equal(buf_adds(&in, suffix), 0);
        _cleanup_free_ char *whole = outcome(DRIVE_REQUEST, buf_str(&in), in.len, 1);
        _cleanup_free_ char *steps = outcome(DRIVE_REQUEST, buf_str(&in), 13, 499);
        if (!strstr(whole, expect))
                fail_msg("expected %s, got %.200s", expect, whole);
        assert_string_equal(whole, steps);
        buf_done(&in);
}

static void test_limits(void **state)
{
        const size_t line = H1_LINE_MAX;

        check_long("GET /", "a", line - 14, " HTTP/1.1\r\n" H "\r\n", "method=[GET]");
        check_long("GET /", "a", line - 13, " HTTP/1.1\r\n" H "\r\n", "refused 414");
        check_long("GET /", "a", 2 * line, "", "refused 414");
        check_long(GET "X: ", "a", line - 3, "\r\n\r\n", "method=[GET]");
        check_long(GET "X: ", "a", line - 2, "\r\n\r\n", "refused 431 a header line");
        check_long(GET, "X: y\r\n", H1_HEADERS_MAX - 1, "\r\n", "method=[GET]");
        check_long(GET, "X: y\r\n", H1_HEADERS_MAX, "\r\n", "refused 431 too many");
        /* 21 lines of 3,000 bytes are below the limit of the head, 22 above it. */
        _cleanup_free_ char *big = xcalloc(1, 3001);
        memset(big, 'a', 2998);
        big[1] = ':';
        memcpy(big + 2998, "\r\n", 2);
        check_long(GET, big, 21, "\r\n", "method=[GET]");
        check_long(GET, big, 22, "\r\n", "refused 431 the head");
        check_long(CHUNKED "1;", "a", H1_CHUNK_EXT_MAX, "\r\nx\r\n0\r\n\r\n", "body=1 sum=78 at");
        check_long(CHUNKED "1;", "a", H1_CHUNK_EXT_MAX + 1, "\r\nx\r\n0\r\n\r\n", "malformed");
        check_long(CHUNKED "0\r\n", "A: bcd\r\n", H1_TRAILER_MAX / 8 - 1, "\r\n", "body=0 sum=0 at");
        check_long(CHUNKED "0\r\n", "A: bcd\r\n", H1_TRAILER_MAX / 8, "\r\n", "malformed");
}

static void test_lookup(void **state)
{
        static const char in[] = GET "accept: a\r\nACCEPT: b ,c\r\n\r\n";
        struct h1_head *h = xcalloc(1, sizeof *h);
        struct h1_error err;
        size_t scanned = 0;

        assert_int_equal(h1_request_parse(in, sizeof in - 1, &scanned, h, &err), sizeof in - 1);
        assert_true(str_eq(h1_find(h, "Accept")->value, STR("a")));
        assert_null(h1_find(h, "Accep"));
        assert_true(h1_has_token(h, "accept", "B"));
        assert_true(h1_has_token(h, "accept", "c"));
        assert_false(h1_has_token(h, "accept", "b ,c"));
        free(h);
}

static void test_write(void **state)
{
        struct buf b = BUF_MAX(200);

        assert_int_equal(h1_write_request_line(&b, "GET", "/a?b"), 0);
        assert_int_equal(h1_write_header(&b, "Host", STR("a")), 0);
        assert_int_equal(h1_write_end(&b), 0);
        assert_string_equal(buf_cstr(&b), "GET /a?b HTTP/1.1\r\nHost: a\r\n\r\n");
        buf_clear(&b);
        assert_int_equal(h1_write_status_line(&b, 404), 0);
        assert_int_equal(h1_write_status_line(&b, 799), 0);
        assert_int_equal(h1_write_chunk_head(&b, 255), 0);
        assert_string_equal(buf_cstr(&b), "HTTP/1.1 404 Not Found\r\nHTTP/1.1 799 \r\nff\r\n");
        buf_clear(&b);
        assert_int_equal(h1_write_request_line(&b, "GE T", "/"), -EINVAL);
        assert_int_equal(h1_write_request_line(&b, "GET", "/a b"), -EINVAL);
        assert_int_equal(h1_write_request_line(&b, "GET", "/\r\nX: y"), -EINVAL);
        assert_int_equal(h1_write_request_line(&b, "GET", ""), -EINVAL);
        assert_int_equal(h1_write_status_line(&b, 99), -EINVAL);
        assert_int_equal(h1_write_header(&b, "A", STR("b\r\nC: d")), -EINVAL);
        assert_int_equal(h1_write_header(&b, "A", STR("b\0")), -EINVAL);
        assert_int_equal(h1_write_header(&b, "A:", STR("b")), -EINVAL);
        assert_int_equal(h1_write_header(&b, "", STR("b")), -EINVAL);
        assert_int_equal(b.len, 0);
        _cleanup_free_ char *big = xcalloc(1, 300);
        memset(big, 'x', 299);
        assert_int_equal(h1_write_header(&b, "A", str_of(big)), -ENOBUFS);
        assert_int_equal(b.len, 0);
        buf_done(&b);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_table),      cmocka_unit_test(test_framing),
                cmocka_unit_test(test_lines),      cmocka_unit_test(test_host_and_target),
                cmocka_unit_test(test_connection), cmocka_unit_test(test_chunks),
                cmocka_unit_test(test_responses),  cmocka_unit_test(test_limits),
                cmocka_unit_test(test_lookup),     cmocka_unit_test(test_write),
        };

        return cmocka_run_group_tests_name("h1", tests, NULL, NULL);
}
