#!/usr/bin/env python3
"""Every test that the threat model names as a proof is there under that name."""

import re

from _tree import TOP, finish


def main():
    problems = []
    text = (TOP / "docs" / "threat-model.md").read_text()
    for name, test in sorted(set(re.findall(r"`([\w/]+\.py)::(\w+)`", text))):
        path = TOP / "test" / name
        if not path.exists():
            problems.append(f"docs/threat-model.md names test/{name}, which is not there")
        elif not re.search(rf"^def {test}\(", path.read_text(), re.MULTILINE):
            problems.append(f"docs/threat-model.md names {test}, which test/{name} has not")
    for number, line in enumerate(text.splitlines(), 1):
        if re.match(r"\|.*\|\s*\|$", line) and not line.startswith("| |"):
            problems.append(f"docs/threat-model.md:{number}: a promise without a proof, not marked as such")
    finish(problems)


main()
