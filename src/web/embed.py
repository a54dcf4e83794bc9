#!/usr/bin/env python3
"""Turns a file into a C array: embed.py INPUT NAME HEADER SOURCE. JSON is made compact on the way."""
import json
import os
import sys

source, name, header_path, source_path = sys.argv[1:]
with open(source, "rb") as f:
    data = f.read()
if source.endswith(".json"):
    data = json.dumps(json.loads(data), ensure_ascii=False, separators=(",", ":")).encode()
rows = [", ".join(str(b) for b in data[i:i + 24]) for i in range(0, len(data), 24)]
with open(header_path, "w") as f:
    f.write(f"#pragma once\n#include <stddef.h>\nextern const unsigned char {name}[];\nextern const size_t {name}_len;\n")
with open(source_path, "w") as f:
    f.write(f'#include "{os.path.basename(header_path)}"\nconst unsigned char {name}[] = {{\n')
    f.write(",\n".join(rows))
    f.write(f"\n}};\nconst size_t {name}_len = {len(data)};\n")
