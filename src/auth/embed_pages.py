#!/usr/bin/env python3
"""Turns the pages' files into one C table: embed_pages.py HEADER SOURCE FILE...

Style sheets, scripts and pictures get an address with a hash of their content in it; templates and texts have none. Templates lose
the white space at the start of lines. Texts are checked: every language has the same keys, and the same {names} in each.
"""
import hashlib
import json
import re
import sys
from pathlib import Path

header, source, *names = sys.argv[1:]
TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
texts, rows, arrays = {}, [], []


def no_duplicates(pairs):
    keys = [key for key, _ in pairs]
    if len(keys) != len(set(keys)):
        sys.exit(f"a text is there twice: {sorted(k for k in keys if keys.count(k) > 1)}")
    return dict(pairs)


for name in names:
    path = Path(name)
    data = path.read_bytes()
    address, kind = "NULL", "NULL"
    if path.suffix in TYPES:
        digest = hashlib.sha256(data).hexdigest()[:12]
        address, kind = f'"/assets/{path.stem}-{digest}{path.suffix}"', f'"{TYPES[path.suffix]}"'
    elif path.suffix == ".html":
        data = re.sub(rb"\n\s*", b"\n", data).strip() + b"\n"
    elif path.suffix == ".json":
        texts[path.stem] = json.loads(data, object_pairs_hook=no_duplicates)
    body = ",\n".join(", ".join(str(b) for b in data[i:i + 24]) for i in range(0, len(data), 24)) or "0"
    arrays.append(f"static const unsigned char file_{len(rows)}[] = {{\n{body}\n}};\n")
    rows.append(f'        {{ "{path.name}", {address}, {kind}, file_{len(rows)}, {len(data)} }},\n')

for language, catalogue in texts.items():
    if catalogue.keys() != texts["en"].keys():
        sys.exit(f"{language}: texts differ from en: {sorted(catalogue.keys() ^ texts['en'].keys())}")
    for key, text in catalogue.items():
        if sorted(re.findall(r"\{\w+\}", text)) != sorted(re.findall(r"\{\w+\}", texts["en"][key])):
            sys.exit(f"{language}: {key} has other names in it than en")
used = {key for name in names if name.endswith(".html") for key in re.findall(r"\{\{_(\w+)\}\}", Path(name).read_text())}
if used - texts["en"].keys():
    sys.exit(f"texts that do not exist: {sorted(used - texts['en'].keys())}")

Path(header).write_text("""#pragma once
#include <stddef.h>
struct page_file {
        const char *name, *path, *type; /* path: the address of an asset, or NULL */
        const unsigned char *data;
        size_t len;
};
extern const struct page_file pages[];
extern const size_t pages_count;
""")
Path(source).write_text(f'#include "{Path(header).name}"\n' + "".join(arrays) + "const struct page_file pages[] = {\n" + "".join(rows) +
                        f"}};\nconst size_t pages_count = {len(rows)};\n")
