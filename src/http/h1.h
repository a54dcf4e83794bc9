/*
 * h1: a strict HTTP/1.1 codec (RFC 9112, RFC 9110): bytes in, events out. No I/O, no policy, no allocation
 * but in h1_head_keep.
 *
 * The parser keeps pointers into the caller's buffer only between h1_head_parse and the next change of that buffer.
 * Everything reference/c-stack.md §1.2 lists is refused: a peer that needs leniency is not served. Nothing here
 * suspends.
 */
#pragma once

#include "base/buf.h"
#include "base/str.h"

#include <stdbool.h>
#include <stdint.h>

#define H1_HEADERS_MAX 100
#define H1_LINE_MAX 8192        /* request line, status line and each header line */
#define H1_HEAD_MAX (64u << 10) /* whole head */
#define H1_CHUNK_EXT_MAX 256    /* bytes of chunk extension per chunk */
#define H1_TRAILER_MAX 8192

struct h1_header {
        struct str name;  /* as sent */
        struct str value; /* surrounding white space cut */
};

enum h1_framing { H1_NO_BODY, H1_LENGTH, H1_CHUNKED, H1_UNTIL_CLOSE /* responses only */ };

struct h1_head {
        /* requests */
        struct str method, target;
        struct str host; /* exactly one Host (HTTP/1.1), validated characters */
        /* responses */
        unsigned status;
        struct str reason;
        /* both */
        unsigned minor; /* HTTP/1.<minor>, 0 or 1 */
        enum h1_framing framing;
        uint64_t length; /* for H1_LENGTH */
        bool keep_alive; /* what the head says about the connection */
        bool expect_continue;
        bool upgrade; /* Connection lists "upgrade" and Upgrade is present */
        size_t header_count;
        /* Last, so that a head that is kept (h1_head_keep) is only as long as its headers: never copy the struct whole.
         */
        struct h1_header headers[H1_HEADERS_MAX];
};

/* Why a message was refused: the status to answer with (requests) and a short reason. */
struct h1_error {
        unsigned status; /* 400, 413, 414, 417, 431, 501, 505 */
        const char *reason;
};

/*
 * Parses one head at the start of p[0..n). Returns the bytes of the head (> 0), 0 when more bytes are needed (only
 * while n < H1_HEAD_MAX), or -EPROTO with *err set. *scanned carries the resume position between calls for the same
 * head (start with 0), so a head that trickles in is not scanned again and again.
 */
long h1_request_parse(const char *p, size_t n, size_t *scanned, struct h1_head *ret, struct h1_error *err);
/* request_method tells framing (HEAD has no body). */
long h1_response_parse(const char *p, size_t n, size_t *scanned, struct str request_method, struct h1_head *ret,
                       struct h1_error *err);

/* A copy that owns its bytes, as small as the head allows: p[0..n) is what was parsed into h. One block; free() it. */
struct h1_head *h1_head_keep(const struct h1_head *h, const char *p, size_t n);

const struct h1_header *h1_find(const struct h1_head *h, const char *name); /* first, name case-insensitive; NULL */
/* True when a comma-separated list header holds token (case-insensitive), over all lines of that name. */
bool h1_has_token(const struct h1_head *h, const char *name, const char *token);

/* Body decoding: feed bytes, get runs of body bytes. */
struct h1_body {
        enum h1_framing framing;
        uint64_t left; /* of the body (H1_LENGTH) or of the present chunk */
        unsigned state;
        size_t ext;    /* extension or trailer bytes seen */
        uint64_t size; /* chunk-size digits so far */
        bool done;
};

void h1_body_init(struct h1_body *b, const struct h1_head *h);
/*
 * Consumes from p[0..n): returns bytes consumed (framing and body), *data and *len the run of body bytes found inside
 * them (len 0 when only framing was consumed); b->done after the last byte (trailers are consumed and dropped). -EPROTO
 * when malformed.
 */
long h1_body_feed(struct h1_body *b, const char *p, size_t n, const char **data, size_t *len);

/* Writing. Names and values are checked (-EINVAL for CR, LF, NUL or bad tokens): response splitting ends here. */
int h1_write_request_line(struct buf *b, const char *method, const char *target);
int h1_write_status_line(struct buf *b, unsigned status);
int h1_write_header(struct buf *b, const char *name, struct str value);
int h1_write_end(struct buf *b);
int h1_write_chunk_head(struct buf *b, size_t n); /* "<hex>\r\n"; data and "\r\n" follow */
const char *h1_reason(unsigned status);
