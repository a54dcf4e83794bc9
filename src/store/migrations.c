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
        "  created_at INTEGER NOT NULL, used_at INTEGER NOT NULL, ended_at INTEGER, oom_kills INTEGER NOT NULL DEFAULT "
        "0"
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

/* People, how they sign in, and what they let in (OAuth). Secrets are here only as SHA-256 or argon2id. */
static const char step_2[] =
        "CREATE TABLE people ("
        "  id TEXT PRIMARY KEY, account_id TEXT NOT NULL REFERENCES accounts(id) ON DELETE CASCADE,"
        "  login TEXT NOT NULL UNIQUE, name TEXT NOT NULL, password TEXT NOT NULL,"
        "  created_at INTEGER NOT NULL, seen_at INTEGER"
        ") STRICT;"
        "CREATE INDEX people_by_account ON people(account_id);"

        "CREATE TABLE invites ("
        "  hash BLOB PRIMARY KEY, id TEXT NOT NULL UNIQUE, account_id TEXT NOT NULL REFERENCES accounts(id) ON DELETE "
        "CASCADE,"
        "  first INTEGER NOT NULL, note TEXT NOT NULL, invited_by TEXT REFERENCES people(id) ON DELETE CASCADE,"
        "  created_at INTEGER NOT NULL, expires_at INTEGER NOT NULL"
        ") STRICT;"

        "CREATE TABLE passkeys ("
        "  id TEXT PRIMARY KEY, person_id TEXT NOT NULL REFERENCES people(id) ON DELETE CASCADE,"
        "  credential BLOB NOT NULL UNIQUE, public_key BLOB NOT NULL, sign_count INTEGER NOT NULL,"
        "  rp_id TEXT NOT NULL, name TEXT NOT NULL, created_at INTEGER NOT NULL, used_at INTEGER"
        ") STRICT;"
        "CREATE INDEX passkeys_by_person ON passkeys(person_id);"

        "CREATE TABLE logins ("
        "  hash BLOB PRIMARY KEY, id TEXT NOT NULL UNIQUE, person_id TEXT NOT NULL REFERENCES people(id) ON DELETE "
        "CASCADE,"
        "  address TEXT NOT NULL, agent TEXT NOT NULL,"
        "  created_at INTEGER NOT NULL, used_at INTEGER NOT NULL, expires_at INTEGER NOT NULL"
        ") STRICT;"
        "CREATE INDEX logins_by_person ON logins(person_id);"

        "CREATE TABLE used_forms (nonce BLOB PRIMARY KEY, expires_at INTEGER NOT NULL) STRICT, WITHOUT ROWID;"

        "CREATE TABLE clients ("
        "  id TEXT PRIMARY KEY, name TEXT NOT NULL, redirect_uris TEXT NOT NULL, document INTEGER NOT NULL,"
        "  created_at INTEGER NOT NULL, used_at INTEGER NOT NULL, granted_at INTEGER, fresh_until INTEGER NOT NULL "
        "DEFAULT 0"
        ") STRICT;"

        "CREATE TABLE grants ("
        "  id TEXT PRIMARY KEY, account_id TEXT NOT NULL REFERENCES accounts(id) ON DELETE CASCADE,"
        "  person_id TEXT NOT NULL REFERENCES people(id) ON DELETE CASCADE, client_id TEXT NOT NULL REFERENCES "
        "clients(id),"
        "  redirect_host TEXT NOT NULL, scope TEXT NOT NULL, resource TEXT NOT NULL,"
        "  created_at INTEGER NOT NULL, used_at INTEGER NOT NULL"
        ") STRICT;"
        "CREATE INDEX grants_by_account ON grants(account_id);"
        "CREATE INDEX grants_by_person ON grants(person_id);"
        "CREATE INDEX grants_by_client ON grants(client_id);"

        "CREATE TABLE codes ("
        "  hash BLOB PRIMARY KEY, person_id TEXT NOT NULL REFERENCES people(id) ON DELETE CASCADE,"
        "  client_id TEXT NOT NULL REFERENCES clients(id) ON DELETE CASCADE, redirect_uri TEXT NOT NULL, challenge "
        "TEXT NOT NULL,"
        "  scope TEXT NOT NULL, resource TEXT NOT NULL, expires_at INTEGER NOT NULL, used_at INTEGER, grant_id TEXT"
        ") STRICT;"

        /* kind: 0 access, 1 refresh. A refresh token that was rotated stays, so that its return is noticed. */
        "CREATE TABLE tokens ("
        "  hash BLOB PRIMARY KEY, grant_id TEXT NOT NULL REFERENCES grants(id) ON DELETE CASCADE, kind INTEGER NOT "
        "NULL,"
        "  created_at INTEGER NOT NULL, expires_at INTEGER NOT NULL, rotated_at INTEGER"
        ") STRICT;"
        "CREATE INDEX tokens_by_grant ON tokens(grant_id);"
        "CREATE INDEX tokens_by_expiry ON tokens(expires_at);";

/* Values that boxes get as environment variables, sealed (base/seal.h). A box keeps copies of what it was given until
 * it ends: what it prints is masked also after a secret was replaced or deleted. given: the box has it for sure. */
static const char step_3[] =
        "CREATE TABLE secrets ("
        "  account_id TEXT NOT NULL REFERENCES accounts(id) ON DELETE CASCADE, name TEXT NOT NULL, sealed BLOB NOT "
        "NULL,"
        "  created_at INTEGER NOT NULL, changed_at INTEGER NOT NULL, used_at INTEGER,"
        "  PRIMARY KEY (account_id, name)"
        ") STRICT, WITHOUT ROWID;"

        "CREATE TABLE box_secrets ("
        "  id INTEGER PRIMARY KEY, box_id TEXT NOT NULL REFERENCES boxes(id) ON DELETE CASCADE, name TEXT NOT NULL,"
        "  sealed BLOB NOT NULL, given INTEGER NOT NULL DEFAULT 0, created_at INTEGER NOT NULL"
        ") STRICT;"
        "CREATE INDEX box_secrets_by_box ON box_secrets(box_id);";

/* What the names of a box reach beyond `services`, as JSON: {externalBaseUrl?, scenePaths?}. Boxes that link to others
 * are few; the index finds them by the same words as boxes_linking. */
static const char step_wiring[] = "ALTER TABLE boxes ADD COLUMN wiring TEXT NOT NULL DEFAULT '{}';"
                                  "CREATE INDEX boxes_that_link ON boxes(account_id) "
                                  "WHERE instr(services, '\"fromBox\"') > 0;";

/* How long the files of a box that no longer runs are kept. */
static const char step_life[] =
        "ALTER TABLE boxes ADD COLUMN restorable_until INTEGER;"
        "CREATE INDEX boxes_by_expiry ON boxes(restorable_until) WHERE restorable_until IS NOT NULL;";

/* Ports that scenes are found at. No reference to boxes: who has the port open must hear that it is free (sweep). */
static const char step_scene_ports[] = "CREATE TABLE scene_ports ("
                                       "  port INTEGER PRIMARY KEY, box_id TEXT NOT NULL, service TEXT NOT NULL,"
                                       "  UNIQUE (box_id, service)"
                                       ") STRICT;";

const char *const migrations[] = { step_1, step_2, step_3, step_wiring, step_life, step_scene_ports };
const size_t migration_count = ARRAY_LEN(migrations);
