#!/usr/bin/env python3
"""Turns tools/*.json into the table that the programs compile in, and into docs/tools.md.

One file per MCP tool is the only source of its name, help, limits and hints. This script refuses a file that a
client or a model would trip over, so that the mistake is found by the build and not by a peer.

  gen-tools.py --header H --source C FILE...   the C table
  gen-tools.py --docs MD FILE...               the page for people
  gen-tools.py --check MD FILE...              1 when that page is not what --docs would write
  gen-tools.py FILE...                         only checks the files
"""

import argparse
import json
import os
import re
import sys

DESCRIPTION_MAX = 2048      # bytes; clients cut longer ones
LISTING_MAX = 64 << 10      # bytes of the whole tools/list answer; it costs every conversation its tokens
HINTS = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")
MEMBERS = {"name", "order", "title", "description", "inputSchema", "outputSchema", "annotations", "runningMs",
           "adapterOnly", "_meta"}

# What src/mcp/schema.c checks; anything else in an inputSchema would be listed and not enforced.
INPUT_KEYWORDS = {
    "string": {"enum", "minLength", "maxLength", "pattern"},
    "integer": {"minimum", "maximum"},
    "number": {"minimum", "maximum"},
    "boolean": set(),
    "array": {"items", "minItems", "maxItems"},
    "object": {"properties", "required", "additionalProperties", "maxProperties"},
}
OUTPUT_KEYWORDS = {"type", "description", "properties", "required", "items", "enum"}
TYPES = set(INPUT_KEYWORDS) | {"null"}

# schema.c's patterns: one run of characters and classes, each with an optional count.
PATTERN = re.compile(r"\^(?:(?:\[[^]\\^][^]\\]*\]|[A-Za-z0-9_/ :@,~-]|\\[.\\/+*?-])(?:[*+?]|\{\d+(?:,\d*)?\})?)+\$")


class Fault(Exception):
    pass


def need(ok, where, text):
    if not ok:
        raise Fault(f"{where}: {text}")


def no_duplicates(pairs):
    d = dict(pairs)
    need(len(d) == len(pairs), "object", f"duplicate key among {[k for k, _ in pairs]}")
    return d


def check_limits(where, kind, schema):
    """Every argument of an open-ended type has an upper limit, so that the server never meets a surprise."""
    if kind == "string":
        need("enum" in schema or "maxLength" in schema, where, "a string needs maxLength or enum")
        need("pattern" not in schema or PATTERN.fullmatch(schema["pattern"]), where, "pattern is outside the subset")
    elif kind in ("integer", "number"):
        need("minimum" in schema and "maximum" in schema, where, "a number needs minimum and maximum")
    elif kind == "array":
        need("items" in schema and "maxItems" in schema, where, "an array needs items and maxItems")
    elif kind == "object":
        extra = schema.get("additionalProperties")
        need(extra is False or isinstance(extra, dict) and "maxProperties" in schema, where,
             "an object needs additionalProperties: false, or a schema for it and maxProperties")


def check_input(where, schema, described=True):
    need(isinstance(schema, dict), where, "a schema is an object")
    kind = schema.get("type")
    need(kind in INPUT_KEYWORDS, where, f"type {kind!r} is not one of {sorted(INPUT_KEYWORDS)}")
    unknown = set(schema) - INPUT_KEYWORDS[kind] - {"type", "description"}
    need(not unknown, where, f"not checked by schema.c: {sorted(unknown)}")
    if described:
        text = schema.get("description", "")
        need(8 <= len(text.encode()) <= 600, where, "needs a description of 8 to 600 bytes")
    check_limits(where, kind, schema)
    for key, sub in schema.get("properties", {}).items():
        need(re.fullmatch(r"[a-zA-Z][A-Za-z0-9]{0,39}", key), where, f"bad property name {key!r}")
        check_input(f"{where}.{key}", sub)
    for key in schema.get("required", []):
        need(key in schema["properties"], where, f"requires {key!r}, which is no property")
    if isinstance(schema.get("additionalProperties"), dict):
        check_input(where + ".*", schema["additionalProperties"], described=False)
    if "items" in schema:
        check_input(where + "[]", schema["items"], described=False)


def check_output(where, schema):
    need(isinstance(schema, dict), where, "a schema is an object")
    unknown = set(schema) - OUTPUT_KEYWORDS
    need(not unknown, where, f"unexpected {sorted(unknown)}")
    kinds = schema.get("type", [])
    for kind in [kinds] if isinstance(kinds, str) else kinds:
        need(kind in TYPES, where, f"unknown type {kind!r}")
    for key, sub in schema.get("properties", {}).items():
        check_output(f"{where}.{key}", sub)
    for key in schema.get("required", []):
        need(key in schema.get("properties", {}), where, f"requires {key!r}, which is no property")
    if "items" in schema:
        check_output(where + "[]", schema["items"])


def check_tool(where, tool, stem):
    unknown = set(tool) - MEMBERS
    need(not unknown, where, f"unknown members {sorted(unknown)}")
    name = tool.get("name", "")
    need(name == stem, where, f"is named {name!r}")
    # 40 leaves room for the prefixes that clients add within their limit of 63.
    need(re.fullmatch(r"[a-z][a-z0-9_]{0,39}", name), where, "bad tool name")
    need(isinstance(tool.get("order"), int), where, "needs an order (place in the list)")
    need(0 < len(tool.get("title", "")) <= 60, where, "needs a title of at most 60 characters")
    size = len(tool.get("description", "").encode())
    need(80 <= size < DESCRIPTION_MAX, where, f"the description has {size} bytes, not 80 to {DESCRIPTION_MAX - 1}")
    hints = tool.get("annotations", {})
    need(set(hints) == set(HINTS) | {"title"}, where, "annotations are title and all four hints")
    need(hints["title"] == tool["title"], where, "annotations.title differs from title")
    need(all(isinstance(hints[h], bool) for h in HINTS), where, "a hint is true or false")
    need(not (hints["readOnlyHint"] and hints["destructiveHint"]), where, "read-only and destructive")
    need(isinstance(tool.get("runningMs"), int) and 1000 <= tool["runningMs"] <= 60000, where,
         "runningMs is 1000 to 60000")
    need(isinstance(tool.get("adapterOnly", False), bool), where, "adapterOnly is true or false")
    need(tool["inputSchema"].get("type") == "object", where, "inputSchema is not an object")
    check_input(f"{where}: inputSchema", tool["inputSchema"], described=False)
    need(tool["outputSchema"].get("type") == "object", where, "outputSchema is not an object")
    check_output(f"{where}: outputSchema", tool["outputSchema"])


def load(paths):
    tools = []
    for path in paths:
        with open(path, encoding="utf-8") as f:
            try:
                tool = json.load(f, object_pairs_hook=no_duplicates)
            except ValueError as e:
                raise Fault(f"{path}: {e}") from e
        stem = os.path.splitext(os.path.basename(path))[0]
        try:
            check_tool(path, tool, stem)
        except KeyError as e:
            raise Fault(f"{path}: lacks {e}") from e
        tools.append(tool)
    tools.sort(key=lambda t: (t["order"], t["name"]))
    need(len({t["order"] for t in tools}) == len(tools), "tools", "two have the same order")
    total = sum(len(compact(listing(t)).encode()) for t in tools)
    need(total <= LISTING_MAX, "tools", f"the list has {total} bytes, more than {LISTING_MAX}")
    return tools


def compact(value):
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def listing(tool):
    keys = ("name", "title", "description", "inputSchema", "outputSchema", "annotations", "_meta")
    return {k: tool[k] for k in keys if k in tool}


def literal(text):
    """C literals, cut into lines; bytes beyond ASCII as octal, which cannot swallow the character after them."""
    out = []
    for byte in text.encode():
        c = chr(byte)
        if c in '"\\':
            out.append("\\" + c)
        elif 0x20 <= byte < 0x7F and c != "?":  # "??" would be a trigraph
            out.append(c)
        else:
            out.append(f"\\{byte:03o}")
    lines, line = [], ""
    for piece in out:
        if len(line) + len(piece) > 110:
            lines.append(line)
            line = ""
        line += piece
    lines.append(line)
    return "\n                ".join(f'"{x}"' for x in lines)


def enum_name(tool):
    return "TOOL_" + re.sub(r"[^A-Z0-9]", "_", tool["name"].upper())


NOTE = "Made by tools/gen-tools.py from the JSON files beside it; edit those."


def header(tools):
    ids = "\n".join(f"        {enum_name(t)}," for t in tools)
    return f"""/* {NOTE} */
#pragma once

#include "mcp/mcp.h"

enum tool_id {{
{ids}
        TOOL_COUNT
}};

extern const struct mcp_tool tools_table[TOOL_COUNT]; /* in the order of the list; .id is the index */
extern const char *const tools_schema[TOOL_COUNT];    /* each tool's inputSchema, for schema_compile */
extern const bool tools_adapter_only[TOOL_COUNT];     /* runs in the adapter, on the caller's machine */
"""


def source(tools):
    rows, schemas, flags = [], [], []
    for t in tools:
        rows.append(f"""        [{enum_name(t)}] = {{
                .name = "{t['name']}",
                .listing =
                {literal(compact(listing(t)))},
                .running_ms = {t['runningMs']},
                .id = {enum_name(t)},
        }},""")
        schemas.append(f"        [{enum_name(t)}] =\n                {literal(compact(t['inputSchema']))},")
        flags.append(f"        [{enum_name(t)}] = {'true' if t.get('adapterOnly') else 'false'},")
    return "\n".join([f"/* {NOTE} */", '#include "tools_table.h"', "",
                      "const struct mcp_tool tools_table[TOOL_COUNT] = {", *rows, "};", "",
                      "const char *const tools_schema[TOOL_COUNT] = {", *schemas, "};", "",
                      "const bool tools_adapter_only[TOOL_COUNT] = {", *flags, "};", ""])


def cell(text):
    return text.replace("|", "\\|").replace("\n", " ")


def type_text(schema):
    kind = schema.get("type", "any")
    kinds = [kind] if isinstance(kind, str) else list(kind)
    if "items" in schema and "array" in kinds:
        inner = type_text(schema["items"])
        kinds[kinds.index("array")] = "array" if inner == "any" else f"array of {inner}"
    if "enum" in schema:
        return ", ".join(f"`{v}`" for v in schema["enum"])
    return " or ".join(kinds)


def rows(schema, prefix=""):
    for key, sub in schema.get("properties", {}).items():
        mark = " (required)" if key in schema.get("required", []) else ""
        yield f"| `{prefix}{key}`{mark} | {type_text(sub)} | {cell(sub.get('description', ''))} |"
        yield from rows(sub, f"{prefix}{key}.")
        if "items" in sub:
            yield from rows(sub["items"], f"{prefix}{key}[].")


def docs(tools):
    out = [f"<!-- {NOTE} -->", "# The MCP tools", "",
           "Every tool answers with one JSON object, as `structuredContent` and as text; a failure is `isError` with one "
           "sentence. An argument that is not listed is refused by name.", ""]
    out += [f"- [`{t['name']}`](#{t['name']}): {t['title']}" for t in tools] + [""]
    for t in tools:
        h = t["annotations"]
        hints = [text for key, text in (("readOnlyHint", "read-only"), ("destructiveHint", "destructive"),
                                        ("idempotentHint", "idempotent"), ("openWorldHint", "open world")) if h[key]]
        out += [f"## {t['name']}", "", t["description"], ""]
        out += [f"Hints: {', '.join(hints) or 'none'}. Reports that it is still running every {t['runningMs'] / 1000:g} s."
                + (" Runs in the adapter." if t.get("adapterOnly") else ""), ""]
        out += ["| argument | type | meaning |", "| --- | --- | --- |", *rows(t["inputSchema"]), ""]
        out += ["| result | type | meaning |", "| --- | --- | --- |", *rows(t["outputSchema"]), ""]
    return "\n".join(out)


def write(path, text):
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for option in ("--header", "--source", "--docs", "--check"):
        p.add_argument(option, metavar="PATH")
    p.add_argument("files", nargs="+", metavar="FILE")
    args = p.parse_args()
    try:
        tools = load(args.files)
    except (Fault, OSError) as e:
        print(f"gen-tools: {e}", file=sys.stderr)
        return 1
    for path, make in ((args.header, header), (args.source, source), (args.docs, docs)):
        if path:
            write(path, make(tools))
    if args.check:
        with open(args.check, encoding="utf-8") as f:
            if f.read() != docs(tools):
                print(f"gen-tools: {args.check} is stale; run: tools/gen-tools.py --docs {args.check} tools/*.json",
                      file=sys.stderr)
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
