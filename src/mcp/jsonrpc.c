#include "mcp/jsonrpc.h"

#include <errno.h>
#include <stdlib.h>

void rpc_done(struct rpc *m)
{
        json_unref(m->tree);
        free(m->id);
        *m = (struct rpc){ 0 };
}

/* Digits with an optional sign: what is left of a double that is a whole number once its ".0" is cut. */
static bool whole_number(struct str s)
{
        if (s.n > 0 && *s.p == '-')
                s = str_n(s.p + 1, s.n - 1);
        if (s.n == 0)
                return false;
        for (size_t i = 0; i < s.n; i++)
                if (s.p[i] < '0' || s.p[i] > '9')
                        return false;
        return true;
}

char *rpc_id_text(const struct json *j)
{
        _cleanup_buf_ struct buf b = BUF_MAX(RPC_ID_MAX + 3);
        enum json_type t = json_type(j);

        if (t != JSON_STRING && t != JSON_INT && t != JSON_DOUBLE)
                return NULL;
        if (json_print(j, &b) < 0)
                return NULL;
        /* Integers beyond 64 bits are doubles with ".0" in the tree; so are those of peers that know only doubles. */
        if (t == JSON_DOUBLE) {
                if (str_ends(buf_str(&b), STR(".0")))
                        b.len -= 2;
                if (!whole_number(buf_str(&b)))
                        return NULL;
        }
        return b.len <= RPC_ID_MAX ? buf_steal(&b) : NULL;
}

static int invalid(struct err *e, const char *why)
{
        (void) err_set(e, RPC_INVALID_REQUEST, "Invalid request: %s", why);
        return -EINVAL;
}

static int parse_id(struct rpc *m, struct err *e)
{
        m->id = rpc_id_text(json_get(m->tree, "id"));
        return m->id ? 0 : invalid(e, "id must be a string or an integer of at most 1024 bytes, never null");
}

static int parse_call(struct rpc *m, struct err *e)
{
        const struct json *params = json_get(m->tree, "params");

        m->kind = json_has(m->tree, "id") ? RPC_REQUEST : RPC_NOTIFICATION;
        m->method = json_str(json_get(m->tree, "method"));
        if (m->kind == RPC_REQUEST && parse_id(m, e) < 0)
                return -EINVAL;
        if (!m->method || strlen(m->method) != json_strn(json_get(m->tree, "method")).n)
                return invalid(e, "method must be a string");
        if (json_has(m->tree, "result") || json_has(m->tree, "error"))
                return invalid(e, "a message is a call or an answer, not both");
        if (params && json_type(params) != JSON_OBJECT)
                return invalid(e, "params must be an object");
        m->params = params;
        return 0;
}

static int parse_response(struct rpc *m, struct err *e)
{
        bool failed = json_has(m->tree, "error");

        m->kind = RPC_RESPONSE;
        if (failed == json_has(m->tree, "result"))
                return invalid(e, "there must be a method, or either a result or an error");
        if (failed && json_type(json_get(m->tree, "error")) != JSON_OBJECT)
                return invalid(e, "error must be an object");
        /* An error about a message that could not be read has id null. */
        if (failed && json_has(m->tree, "id") && !json_get(m->tree, "id"))
                return 0;
        return parse_id(m, e);
}

int rpc_parse(const char *p, size_t n, struct rpc *ret, struct err *e)
{
        struct err why = { 0 };
        int r;

        *ret = (struct rpc){ 0 };
        r = json_parse(p, n, &ret->tree, &why);
        if (r < 0) {
                (void) err_set(e, RPC_PARSE_ERROR, "Parse error: %s", err_text(&why));
                return -EINVAL;
        }
        if (json_type(ret->tree) == JSON_ARRAY)
                return invalid(e, "batches are not supported; send one message at a time");
        if (json_type(ret->tree) != JSON_OBJECT)
                return invalid(e, "a message is an object");
        if (!str_eq(json_strn(json_get(ret->tree, "jsonrpc")), STR("2.0"))) {
                ret->id = rpc_id_text(json_get(ret->tree, "id"));
                return invalid(e, "jsonrpc must be \"2.0\"");
        }
        return json_has(ret->tree, "method") ? parse_call(ret, e) : parse_response(ret, e);
}

static void begin(struct jw *w, struct buf *b, const char *id)
{
        jw_init(w, b);
        jw_obj(w);
        jw_kstr(w, "jsonrpc", "2.0");
        jw_key(w, "id");
        if (id)
                jw_raw(w, str_of(id));
        else
                jw_null(w);
}

int rpc_error_body(struct buf *b, const char *id, int code, const char *message)
{
        struct jw w;

        begin(&w, b, id);
        jw_kobj(&w, "error");
        jw_kint(&w, "code", code);
        jw_kstr(&w, "message", message);
        return jw_end_all(&w);
}

int rpc_result_body(struct buf *b, const char *id, struct str result)
{
        struct jw w;

        begin(&w, b, id);
        jw_key(&w, "result");
        jw_raw(&w, result);
        return jw_end_all(&w);
}
