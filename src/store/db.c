#include "store/db.h"
#include "store/migrations.h"

#include "base/list.h"
#include "base/map.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct db {
        sqlite3 *sq;
        struct map *statements; /* SQL text -> sqlite3_stmt */
        const void *watch;
};

void db_set_watch(struct db *db, const void *watch)
{
        db->watch = watch;
}

const void *db_watch(const struct db *db)
{
        return db->watch;
}

static int to_errno(int rc)
{
        switch (rc & 0xff) {
        case SQLITE_OK:
        case SQLITE_DONE:
        case SQLITE_ROW:
                return 0;
        case SQLITE_CONSTRAINT:
                return -EEXIST;
        case SQLITE_FULL:
                return -ENOSPC;
        case SQLITE_BUSY:
        case SQLITE_LOCKED:
                return -EBUSY;
        case SQLITE_NOMEM:
                return -ENOMEM;
        case SQLITE_READONLY:
        case SQLITE_CANTOPEN:
                return -EACCES;
        default:
                return -EIO;
        }
}

static int exec_sql(struct db *db, const char *sql, struct err *e)
{
        int rc = sqlite3_exec(db->sq, sql, NULL, NULL, NULL);

        return rc == SQLITE_OK ? 0 : err_set(e, to_errno(rc), "database: %s", sqlite3_errmsg(db->sq));
}

static int read_version(struct db *db, int64_t *ret, struct err *e)
{
        sqlite3_stmt *st = NULL;
        int rc = sqlite3_prepare_v2(db->sq, "PRAGMA user_version", -1, &st, NULL);

        if (rc == SQLITE_OK && sqlite3_step(st) == SQLITE_ROW)
                *ret = sqlite3_column_int64(st, 0);
        else
                rc = SQLITE_ERROR;
        (void) sqlite3_finalize(st);
        return rc == SQLITE_OK ? 0 : err_set(e, -EIO, "database: %s", sqlite3_errmsg(db->sq));
}

/* Each step runs in a transaction with its version number, so a crash leaves a whole version behind. */
static int migrate(struct db *db, struct err *e)
{
        int64_t version = 0;
        int r = read_version(db, &version, e);

        if (r < 0)
                return r;
        if (version > (int64_t) migration_count)
                return err_set(e, -EPROTO,
                               "the database is of version %lld, this program knows %zu: use the newer release",
                               (long long) version, migration_count);
        for (size_t i = (size_t) version; i < migration_count; i++) {
                char *pragma = xasprintf("PRAGMA user_version = %zu", i + 1);

                r = db_begin(db, e);
                /* Another process may have migrated while this one waited for the lock. */
                if (r == 0 && (r = read_version(db, &version, e)) == 0 && version == (int64_t) i) {
                        r = exec_sql(db, migrations[i], e);
                        if (r == 0)
                                r = exec_sql(db, pragma, e);
                }
                free(pragma);
                if (r == 0)
                        r = db_commit(db, e);
                if (r < 0) {
                        db_rollback(db);
                        return err_wrap(e, "migration %zu", i + 1);
                }
        }
        return 0;
}

int db_open(const char *path, struct db **ret, struct err *e)
{
        struct db *db = xcalloc(1, sizeof *db);
        /* The file is made by us first, so that its mode is right whatever the umask. */
        int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

        if (fd < 0) {
                int r = err_sys(e, -errno, "%s", path);

                free(db);
                return r;
        }
        (void) close(fd);
        db->statements = map_new();
        int rc = sqlite3_open_v2(path, &db->sq, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL);
        int r = rc == SQLITE_OK ? 0 : err_set(e, to_errno(rc), "%s: %s", path, sqlite3_errmsg(db->sq));

        if (r == 0) {
                (void) sqlite3_busy_timeout(db->sq, 10000);
                (void) sqlite3_extended_result_codes(db->sq, 1);
                r = exec_sql(db,
                             "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA foreign_keys=ON;"
                             "PRAGMA trusted_schema=OFF; PRAGMA cache_size=-2048",
                             e);
        }
        if (r == 0)
                r = migrate(db, e);
        if (r < 0) {
                db_close(db);
                return r;
        }
        *ret = db;
        return 0;
}

static int finalize_one(struct str key, void *value, void *arg)
{
        (void) key;
        (void) arg;
        (void) sqlite3_finalize(value);
        return 0;
}

void db_close(struct db *db)
{
        if (!db)
                return;
        (void) map_each(db->statements, finalize_one, NULL);
        map_free(db->statements);
        (void) sqlite3_close(db->sq);
        free(db);
}

void db_closep(struct db **db)
{
        db_close(*db);
}

int db_checkpoint(struct db *db)
{
        return to_errno(sqlite3_wal_checkpoint_v2(db->sq, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL));
}

int db_begin(struct db *db, struct err *e)
{
        return exec_sql(db, "BEGIN IMMEDIATE", e);
}

int db_commit(struct db *db, struct err *e)
{
        return exec_sql(db, "COMMIT", e);
}

void db_rollback(struct db *db)
{
        (void) exec_sql(db, "ROLLBACK", NULL);
}

void query(struct db *db, struct query *q, const char *sql)
{
        *q = (struct query){ .db = db };
        q->stmt = map_get(db->statements, str_of(sql));
        if (q->stmt)
                return;
        sqlite3_stmt *st = NULL;
        q->r = sqlite3_prepare_v3(db->sq, sql, -1, SQLITE_PREPARE_PERSISTENT, &st, NULL);
        if (q->r == SQLITE_OK) {
                q->stmt = st;
                (void) map_put(db->statements, str_of(sql), st);
        }
}

static void note(struct query *q, int rc)
{
        if (q->r == SQLITE_OK && rc != SQLITE_OK)
                q->r = rc;
}

void query_str(struct query *q, const char *s)
{
        if (!s)
                query_null(q);
        else
                query_strn(q, str_of(s));
}

void query_strn(struct query *q, struct str s)
{
        if (q->stmt)
                note(q, sqlite3_bind_text64(q->stmt, ++q->bound, s.p, s.n, SQLITE_TRANSIENT, SQLITE_UTF8));
}

void query_blob(struct query *q, const void *p, size_t n)
{
        if (q->stmt)
                note(q, sqlite3_bind_blob64(q->stmt, ++q->bound, p, n, SQLITE_TRANSIENT));
}

void query_int(struct query *q, int64_t v)
{
        if (q->stmt)
                note(q, sqlite3_bind_int64(q->stmt, ++q->bound, v));
}

void query_null(struct query *q)
{
        if (q->stmt)
                note(q, sqlite3_bind_null(q->stmt, ++q->bound));
}

bool query_row(struct query *q)
{
        if (!q->stmt || q->r != SQLITE_OK)
                return false;
        int rc = sqlite3_step(q->stmt);
        if (rc == SQLITE_ROW)
                return true;
        if (rc != SQLITE_DONE)
                note(q, rc);
        return false;
}

int query_end(struct query *q, struct err *e)
{
        int r = to_errno(q->r);

        if (r < 0)
                (void) err_set(e, r, "database: %s", sqlite3_errmsg(q->db->sq));
        if (q->stmt) {
                (void) sqlite3_reset(q->stmt);
                (void) sqlite3_clear_bindings(q->stmt);
        }
        return r;
}

int query_run(struct query *q, struct err *e)
{
        while (query_row(q))
                ;
        return query_end(q, e);
}

int query_change(struct db *db, struct query *q)
{
        int r = query_run(q, NULL);

        if (r < 0)
                return r;
        return query_changes(db) > 0 ? 0 : -ENOENT;
}

int64_t query_number(struct query *q)
{
        int64_t n = query_row(q) ? col_int(q, 0) : 0;
        int r = query_end(q, NULL);

        return r < 0 ? r : n;
}

int64_t query_changes(struct db *db)
{
        return sqlite3_changes64(db->sq);
}

int64_t query_last_id(struct db *db)
{
        return sqlite3_last_insert_rowid(db->sq);
}

const char *col_str(struct query *q, int i)
{
        return (const char *) sqlite3_column_text(q->stmt, i);
}

void col_copy(struct query *q, int i, char *out, size_t n)
{
        (void) snprintf(out, n, "%s", col_null(q, i) ? "" : col_str(q, i));
}

int64_t col_int(struct query *q, int i)
{
        return sqlite3_column_int64(q->stmt, i);
}

bool col_null(struct query *q, int i)
{
        return sqlite3_column_type(q->stmt, i) == SQLITE_NULL;
}

const void *col_blob(struct query *q, int i, size_t *n)
{
        const void *p = sqlite3_column_blob(q->stmt, i);

        *n = (size_t) sqlite3_column_bytes(q->stmt, i);
        return p;
}
