#!/usr/bin/env python3
"""Puts the programs that a meson build folder made into its bin/, where they find each other.

    link-outputs.py BUILD-FOLDER

Hard links, not symbolic ones: a program looks for its siblings beside the file it was started from.
"""

import json
import os
import sys
from pathlib import Path

PROGRAMS = ("parallelsandbox", "boxhost", "boxd", "parallelsandbox-mcp", "parallelsandbox-agent",
            "parallelsandbox-conformance")


def main(args: list[str]) -> int:
    if len(args) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    build = Path(args[0]).resolve()
    out = build / "bin"
    out.mkdir(exist_ok=True)
    for target in json.loads((build / "meson-info" / "intro-targets.json").read_text()):
        if target["type"] != "executable" or target["name"] not in PROGRAMS:
            continue
        made = Path(target["filename"][0])
        link = out / target["name"]
        if not made.exists() or made == link:
            continue
        if link.exists() and link.samefile(made):
            continue
        staged = out / f".{link.name}.new"
        staged.unlink(missing_ok=True)
        os.link(made, staged)
        staged.replace(link)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
