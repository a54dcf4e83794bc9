/* h1_chars: the character classes of RFC 9110 and RFC 3986 as bit masks. For the files of the codec and url.c. Pure. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define H1_BIT(c) (UINT64_C(1) << ((c) &63))
#define H1_SPAN(a, b) ((~UINT64_C(0) >> (63 - ((b) &63))) & (~UINT64_C(0) << ((a) &63)))

static inline bool h1_in_class(unsigned char c, uint64_t low, uint64_t high)
{
        return c < 64 ? (low >> c) & 1 : c < 128 ? (high >> (c - 64)) & 1 : false;
}

/* tchar, RFC 9110 §5.6.2 */
static inline bool h1_is_token(char c)
{
        return h1_in_class((unsigned char) c,
                           H1_SPAN('0', '9') | H1_BIT('!') | H1_BIT('#') | H1_BIT('$') | H1_BIT('%') | H1_BIT('&') |
                                   H1_BIT('\'') | H1_BIT('*') | H1_BIT('+') | H1_BIT('-') | H1_BIT('.'),
                           H1_SPAN('A', 'Z') | H1_SPAN('a', 'z') | H1_BIT('^') | H1_BIT('_') | H1_BIT('`') |
                                   H1_BIT('|') | H1_BIT('~'));
}

/* field-content, RFC 9110 §5.5: visible characters, obs-text (opaque, passed through), SP and HTAB. */
static inline bool h1_is_field(char c)
{
        unsigned char u = (unsigned char) c;

        return (u >= 0x20 && u != 0x7f) || u == '\t';
}

/*
 * Request target, RFC 9112 §3.2 over RFC 3986: visible ASCII without what no URI and no browser sends unescaped.
 * []\^`{|} are no URI characters either, but the URL standard leaves them bare in queries, so browsers send them.
 */
static inline bool h1_is_target(char c)
{
        unsigned char u = (unsigned char) c;

        return u > 0x20 && u < 0x7f && u != '"' && u != '#' && u != '<' && u != '>';
}

/* reg-name and IPv4, RFC 3986 §3.2.2, without sub-delims and escapes, which no host of ours has. */
static inline bool h1_is_host(char c)
{
        return h1_in_class((unsigned char) c, H1_SPAN('0', '9') | H1_BIT('-') | H1_BIT('.'),
                           H1_SPAN('A', 'Z') | H1_SPAN('a', 'z') | H1_BIT('_') | H1_BIT('~'));
}

static inline bool h1_is_digit(char c)
{
        return c >= '0' && c <= '9';
}

/* The value of a hex digit, or -1. */
static inline int h1_hex(char c)
{
        if (c >= '0' && c <= '9')
                return c - '0';
        if (c >= 'a' && c <= 'f')
                return c - 'a' + 10;
        if (c >= 'A' && c <= 'F')
                return c - 'A' + 10;
        return -1;
}
