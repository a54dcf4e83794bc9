#!/usr/bin/env python3
"""Every relative link in the documentation leads to a file, and to a heading in it when it names one."""

import re
import urllib.parse

from _tree import files, finish, where


def anchors(text: str) -> set[str]:
    found = set()
    for line in text.splitlines():
        match = re.match(r"#+\s+(.*)", line)
        if match:
            slug = re.sub(r"[^\w\- ]", "", match.group(1).strip().lower()).replace(" ", "-")
            found.add(slug)
    return found


def main():
    problems = []
    for path in files("*.md", "**/*.md"):
        text = path.read_text()
        plain = re.sub(r"```.*?```", lambda m: "\n" * m.group(0).count("\n"), text, flags=re.DOTALL)
        for match in re.finditer(r"\[[^\]]*\]\(([^)\s]+)\)", plain):
            target = match.group(1)
            if re.match(r"[a-z]+:", target):
                continue
            line = plain.count("\n", 0, match.start()) + 1
            name, _, anchor = target.partition("#")
            linked = (path.parent / urllib.parse.unquote(name)) if name else path
            if not linked.exists():
                problems.append(f"{where(path, line)}: {target} does not exist")
            elif anchor and linked.suffix == ".md" and anchor not in anchors(linked.read_text()):
                problems.append(f"{where(path, line)}: {target}: no such heading")
    finish(problems)


main()
