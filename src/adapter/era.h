/*
 * era: the two eras of the protocol. Up to 2025-11-25 there are sessions that `initialize` opens; from 2026-07-28 on
 * each request says in `_meta` which version it is. Pure: texts of JSON objects in and out, what is not touched stays
 * byte for byte.
 */
#pragma once

#include "base/buf.h"
#include "base/json.h"

#define ERA_LEGACY "2025-11-25"
#define ERA_MODERN "2026-07-28"
#define ERA_META "io.modelcontextprotocol/"

/* The members of `_meta` that belong to one hop, as the host sent them; NULL when it sent none. */
bool era_is_modern(const struct json *msg); /* params._meta names a version */

/*
 * params for the next hop: of `_meta`, what belongs to the hop is taken out, and, when modern, put in anew: our
 * version, the host's capabilities and name if it gave any, else none and ours.
 */
int era_params(struct buf *out, struct str params, bool modern);

/* A result for a modern host: resultType and the server's name are added when they are missing; listing also adds how
 * long it may be kept. */
int era_result(struct buf *out, struct str result, bool listing);

/* A value as a header can carry it: as it is, or =?base64?…?=. */
int era_header_value(struct buf *out, struct str value);
