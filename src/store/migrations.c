#include "store/migrations.h"

#include "base/mem.h"

/* Times are Unix milliseconds. */
static const char step_1[] =
        "CREATE TABLE accounts ("
        "  id TEXT PRIMARY KEY, name TEXT NOT NULL, created_at INTEGER NOT NULL"
        ") STRICT;"

        "CREATE TABLE keys ("
        "  id TEXT PRIMARY KEY, account_id TEXT NOT NULL REFERENCES accounts(id) ON DELETE CASCADE,"
        "  name TEXT NOT NULL, hash BLOB NOT NULL UNIQUE, hint TEXT NOT NULL,"
        "  created_at INTEGER NOT NULL, last_used_at INTEGER, revoked_at INTEGER"
        ") STRICT;"

        "CREATE TABLE agents ("
        "  account_id TEXT NOT NULL REFERENCES accounts(id) ON DELETE CASCADE, id TEXT NOT NULL,"
        "  client TEXT, called_at INTEGER NOT NULL, heartbeat_at INTEGER, left_at INTEGER,"
        "  PRIMARY KEY (account_id, id)"
        ") STRICT, WITHOUT ROWID;"

        "CREATE TABLE sessions ("
        "  id TEXT PRIMARY KEY, account_id TEXT NOT NULL REFERENCES accounts(id) ON DELETE CASCADE,"
        "  version TEXT NOT NULL, client TEXT, created_at INTEGER NOT NULL, used_at INTEGER NOT NULL"
        ") STRICT, WITHOUT ROWID;"
        "CREATE INDEX sessions_by_use ON sessions(used_at);"

        "CREATE TABLE boxes ("
        "  id TEXT PRIMARY KEY, account_id TEXT NOT NULL REFERENCES accounts(id) ON DELETE CASCADE,"
        "  name TEXT NOT NULL, goal TEXT NOT NULL, image TEXT NOT NULL, size TEXT NOT NULL,"
        "  state TEXT NOT NULL CHECK (state IN ('starting','running','frozen','archived','lost','deleted')),"
        "  why TEXT, agent_id TEXT, agent_client TEXT,"
        "  services TEXT NOT NULL DEFAULT '[]', repos TEXT NOT NULL DEFAULT '[]',"
        "  created_at INTEGER NOT NULL, used_at INTEGER NOT NULL, ended_at INTEGER, oom_kills INTEGER NOT NULL DEFAULT 0"
        ") STRICT;"
        "CREATE INDEX boxes_by_account ON boxes(account_id, used_at);"
        "CREATE INDEX boxes_by_state ON boxes(state);"

        "CREATE TABLE steps ("
        "  id INTEGER PRIMARY KEY, box_id TEXT NOT NULL REFERENCES boxes(id) ON DELETE CASCADE,"
        "  tool TEXT NOT NULL, exec_id TEXT, agent_id TEXT, command TEXT, directory TEXT, note TEXT,"
        "  started_at INTEGER NOT NULL, ended_at INTEGER, exit_code INTEGER, signal TEXT,"
        "  timed_out INTEGER NOT NULL DEFAULT 0, oom_killed INTEGER NOT NULL DEFAULT 0, error TEXT"
        ") STRICT;"
        "CREATE INDEX steps_by_box ON steps(box_id, id);"
        "CREATE INDEX steps_by_exec ON steps(box_id, exec_id) WHERE exec_id IS NOT NULL;"

        "CREATE TABLE blobs ("
        "  id TEXT PRIMARY KEY, account_id TEXT NOT NULL REFERENCES accounts(id) ON DELETE CASCADE,"
        "  box_id TEXT, name TEXT NOT NULL, type TEXT NOT NULL, bytes INTEGER NOT NULL,"
        "  created_at INTEGER NOT NULL, expires_at INTEGER NOT NULL"
        ") STRICT;"
        "CREATE INDEX blobs_by_expiry ON blobs(expires_at);";

const char *const migrations[] = { step_1 };
const size_t migration_count = ARRAY_LEN(migrations);
