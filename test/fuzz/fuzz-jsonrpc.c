/* A message that is accepted has the kind and id it says, and its answer is a message that is accepted, with the same
 * id. */
#include "mcp/jsonrpc.h"
#include "fuzz.h"

#include <stdlib.h>

#define CHECK(condition)          \
        do {                      \
                if (!(condition)) \
                        abort();  \
        } while (0)

static void check_answer(const struct buf *body, const char *id)
{
        _cleanup_rpc_ struct rpc m = { 0 };
        struct err e = { 0 };

        CHECK(rpc_parse(body->p, body->len, &m, &e) == 0);
        CHECK(m.kind == RPC_RESPONSE && cstr_eq(m.id, id));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        _cleanup_rpc_ struct rpc m = { 0 };
        _cleanup_buf_ struct buf b = BUF_MAX(1 << 16);
        struct err e = { 0 };

        if (rpc_parse((const char *) data, size, &m, &e) < 0) {
                CHECK((e.code == RPC_PARSE_ERROR || e.code == RPC_INVALID_REQUEST) && e.msg[0]);
                CHECK(rpc_error_body(&b, m.id, e.code, e.msg) == 0);
                check_answer(&b, m.id);
                return 0;
        }
        CHECK((m.kind == RPC_REQUEST) <= (m.id != NULL) && (m.kind == RPC_NOTIFICATION) <= (m.id == NULL));
        CHECK((m.kind == RPC_RESPONSE) == (m.method == NULL));
        CHECK(!m.params || json_type(m.params) == JSON_OBJECT);
        if (m.kind == RPC_REQUEST) {
                CHECK(rpc_result_body(&b, m.id, STR("{}")) == 0);
                check_answer(&b, m.id);
        }
        return 0;
}
