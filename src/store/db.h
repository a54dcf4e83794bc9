/*
 * db: one SQLite database in WAL mode, STRICT tables, forward migrations. The only folder that includes sqlite3.h.
 *
 * One connection, used on the loop thread only; transactions are short and nothing suspends inside one. A statement
 * that changed something is durable against kill -9 when the function returns (WAL, synchronous=NORMAL), which is
 * before anything is answered. A second program may open the same file (`parallelsandbox keys`): busy_timeout makes
 * writers wait for each other.
 */
#pragma once

#include "base/err.h"
#include "base/str.h"

#include <stdbool.h>
#include <stdint.h>

struct db;

/* Opens or creates path (mode 0600) and brings the schema up to date; -EPROTO when the file is from a newer release. */
int db_open(const char *path, struct db **ret, struct err *e);
void db_close(struct db *db);
void db_closep(struct db **db);

/* Copies the log into the database file and truncates it; safe on another thread's connection opened with db_open. */
int db_checkpoint(struct db *db);

int db_begin(struct db *db, struct err *e);
int db_commit(struct db *db, struct err *e);
void db_rollback(struct db *db);

/*
 * One statement, prepared once and cached by its text (which must be a string constant).
 *   struct query q; query(db, &q, "SELECT … WHERE id = ?"); query_str(&q, id); while (query_row(&q)) … ; r =
 * query_end(&q, e); Errors are sticky and come out of query_end. Bound strings are copied; columns are valid until the
 * next query_row/query_end.
 */
struct query {
        struct db *db;
        void *stmt;
        int r;
        int bound;
};

void query(struct db *db, struct query *q, const char *sql);
void query_str(struct query *q, const char *s); /* NULL binds NULL */
void query_strn(struct query *q, struct str s);
void query_blob(struct query *q, const void *p, size_t n);
void query_int(struct query *q, int64_t v);
void query_null(struct query *q);
bool query_row(struct query *q);                  /* true while there is a row */
int query_end(struct query *q, struct err *e);    /* 0, -EEXIST for a constraint, -EIO … */
int query_run(struct query *q, struct err *e);    /* for statements without rows */
int query_change(struct db *db, struct query *q); /* runs it: 0 when rows changed, -ENOENT when none did, -EIO … */
int64_t query_number(struct query *q);            /* runs it: the first row's first column, 0 without a row, -EIO … */
int64_t query_changes(struct db *db);             /* rows changed by the last statement */
int64_t query_last_id(struct db *db);

/* Who is told of rows that were written; what it is, says boxes.h. NULL at first. Not owned. */
void db_set_watch(struct db *db, const void *watch);
const void *db_watch(const struct db *db);

const char *col_str(struct query *q, int i);                /* NULL for NULL */
void col_copy(struct query *q, int i, char *out, size_t n); /* a string, cut at n - 1 bytes; "" for NULL */
int64_t col_int(struct query *q, int i);
bool col_null(struct query *q, int i);
const void *col_blob(struct query *q, int i, size_t *n);
