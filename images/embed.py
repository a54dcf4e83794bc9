#!/usr/bin/env python3
"""Turns the image recipes into one C table: embed.py HEADER SOURCE FILE..."""
import sys
from pathlib import Path

header, source, *names = sys.argv[1:]
arrays, rows = [], []
for name in names:
    path = Path(name)
    data = path.read_text(encoding="ascii").encode() + b"\0"
    body = ",\n".join(", ".join(str(b) for b in data[i:i + 24]) for i in range(0, len(data), 24))
    arrays.append(f"static const char file_{len(rows)}[] = {{\n{body}\n}};\n")
    rows.append(f'        {{ "{path.parent.name}", "{path.name}", file_{len(rows)} }},\n')
Path(header).write_text("""#pragma once
#include <stddef.h>
struct image_file {
        const char *image, *name, *text;
};
extern const struct image_file image_files[];
extern const size_t image_files_count;
""")
Path(source).write_text(f'#include "{Path(header).name}"\n' + "".join(arrays) + "const struct image_file image_files[] = {\n" +
                        "".join(rows) + f"}};\nconst size_t image_files_count = {len(rows)};\n")
