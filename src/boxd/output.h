/*
 * output: sending what was kept of a job's output, from wherever it is kept.
 */
#pragma once

#include "boxd/conn.h"
#include "boxd/job.h"

typedef long (*kept_read_fn)(void *arg, uint64_t off, void *p, size_t n);

struct kept_source {
        struct kept kept;
        kept_read_fn read;
        void *arg;
};

/* How much of it, as a wait asks. */
struct output_limit {
        uint64_t max_bytes;  /* per stream */
        uint64_t tail_lines; /* 0: head and tail */
};

struct output_cut {
        uint64_t omitted, omitted_at; /* bytes left out before sent byte number omitted_at */
};

#define OUTPUT_DEFAULT (32u << 10)
#define OUTPUT_MAX (96u << 10) /* fits in a socket's buffer together with the other stream's */

void output_limit_parse(struct json *head, struct output_limit *l);
int output_send(int fd, enum guest_stream stream, const struct kept_source *s, const struct output_limit *l,
                struct output_cut *cut);
/* All that is kept, then the result. */
int output_send_all(int fd, enum guest_stream stream, const struct kept_source *s);
/* stdoutBytes, stdoutOmitted, stdoutOmittedAt (or stderr…) */
void output_fields(struct jw *w, const char *name, const struct kept *k, const struct output_cut *cut);
bool output_contains(const struct kept_source *s, struct str needle);
