#!/usr/bin/env python3
"""The rules of the house that a program can see (docs/principles.md says why each exists).

- A folder of src/ includes only itself and the folders above it in the list below.
- Each foreign library has the one folder or file that may include it.
- Calls that cannot be used safely are banned; privileged ones belong to boxhost.
- No file is longer than 800 lines; every header opens with a comment that says what it is.
- Nothing names a machine's own paths or a package registry's host.
- Shell scripts stop at the first error.
"""

import re

from _tree import TOP, files, finish, where

ORDER = ["base", "loop", "http", "rfb", "mcp", "store", "guest", "boxd", "boxhost", "driver", "control", "auth", "logs",
         "web", "sync", "adapter", "agent", "main"]

# header -> where it may be included (a folder, or a file without its ending)
FOREIGN = {
    r"uv\.h": ["loop"],
    r"(json-c/)?json(_[a-z]+)?\.h": ["base/json"],
    r"sodium\.h": ["base", "auth"],
    r"sqlite3\.h": ["store"],
    r"(postgresql/)?libpq-fe\.h": ["store"],
    r"curl/.*": ["http", "adapter"],
    r"openssl/.*": ["loop", "http", "auth"],
    r"wslay/.*": ["http"],
    r"(spng|turbojpeg)\.h": ["rfb"],
    r"seccomp\.h": ["boxhost"],
    r"sys/capability\.h": ["boxhost"],
    r"libmnl/.*": ["boxhost"],
    r"(isa-l|isa-l/.*|igzip_lib\.h)": ["guest", "boxd", "sync", "control", "http", "base"],
    r"archive(_entry)?\.h": ["guest", "boxd", "sync", "control"],
}

BANNED = {
    "strcpy": "no bound: use str_ or buf_",
    "strcat": "no bound: use str_ or buf_",
    "sprintf": "no bound: use snprintf or str_",
    "vsprintf": "no bound: use vsnprintf or str_",
    "gets": "no bound",
    "atoi": "cannot tell an error: use a parse_ function",
    "atol": "cannot tell an error: use a parse_ function",
    "atoll": "cannot tell an error: use a parse_ function",
    "atof": "cannot tell an error",
    "system": "a shell in between: spawn the program",
    "popen": "a shell in between: spawn the program",
    "alloca": "no bound on the stack",
    "strtok": "keeps hidden state",
    "tmpnam": "a race by design",
    "tempnam": "a race by design",
    "mktemp": "a race by design",
    "localtime": "shared buffer: use localtime_r",
    "gmtime": "shared buffer: use gmtime_r",
}
PRIVILEGED = ("mount", "umount", "umount2", "setns", "unshare", "pivot_root", "chroot", "fsopen", "fsmount", "fsconfig",
              "move_mount", "open_tree", "mount_setattr", "sethostname", "swapon", "reboot")

# A user namespace of one's own takes no privilege: it is where boxd starts a program with a sandbox (boxd/launch.h).
UNPRIVILEGED = {("boxd/launch.c", "unshare")}

LINE_LIMIT = 800
# Files that come from a tool or hold recorded data may be long.
LONG_ALLOWED = re.compile(r"(^docs/openapi\.json$|package-lock\.json$|^test/fuzz/corpus/|^docs/tools\.md$|\.svg$|^LICENSE)")

# `/work` is where a box keeps its files, so it is part of the product; the folder of a build machine is not.
MACHINE_PATH = re.compile(r"(?<![\w.$}~-])/(root|home/[a-z_][a-z0-9_-]*)/[\w.]")
REGISTRY = re.compile(r"(registry\.npmjs\.org|deb\.debian\.org|security\.debian\.org|snapshot\.debian\.org|"
                      r"ftp\.[a-z.]*debian\.org|pypi\.org|registry\.yarnpkg|deb\.nodesource)")


def strip_c(text: str) -> str:
    """The C text with comments and strings blanked; lines keep their numbers."""
    pattern = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.DOTALL)

    def blank(match: re.Match) -> str:
        piece = match.group(0)
        return '""' if piece[0] == '"' else re.sub(r"[^\n]", " ", piece)

    return pattern.sub(blank, text)


def check_includes(path, text, problems):
    relative = path.relative_to(TOP / "src")
    folder = relative.parts[0]
    if folder not in ORDER:
        if len(relative.parts) > 1:
            problems.append(f"{where(path)}: src/{folder} is not in the list of folders of {__file__.split('/')[-1]}")
        return
    for number, line in enumerate(text.splitlines(), 1):
        match = re.match(r'\s*#\s*include\s+([<"])([^>"]+)[>"]', line)
        if not match:
            continue
        header = match.group(2)
        first = header.split("/")[0]
        if match.group(1) == '"' and first in ORDER and ORDER.index(first) > ORDER.index(folder):
            problems.append(f"{where(path, number)}: {folder}/ may not use {first}/, which is below it")
        for pattern, allowed in FOREIGN.items():
            if match.group(1) == "<" and re.fullmatch(pattern, header):
                stem = str(relative.with_suffix(""))
                if not any(stem == place or stem.startswith(place + "/") for place in allowed):
                    problems.append(f"{where(path, number)}: <{header}> belongs to {', '.join(allowed)}")


def check_calls(path, code, problems):
    in_src = path.is_relative_to(TOP / "src")
    folder = path.relative_to(TOP / "src").parts[0] if in_src else ""
    for number, line in enumerate(code.splitlines(), 1):
        for match in re.finditer(r"(?<![\w.>])([a-z_0-9]+)\s*\(", line):
            name = match.group(1)
            if name in BANNED:
                problems.append(f"{where(path, number)}: {name}() is banned: {BANNED[name]}")
            # main/ is where a program gives its privilege up, and prepares to
            if in_src and (str(path.relative_to(TOP / "src")), name) in UNPRIVILEGED:
                continue
            if name in PRIVILEGED and in_src and folder not in ("boxhost", "main"):
                problems.append(f"{where(path, number)}: {name}() needs privilege, and only boxhost/ has any")


def main():
    problems = []
    for path in files("src/**/*.c", "src/**/*.h", "src/*.c", "src/*.h"):
        text = path.read_text()
        check_includes(path, text, problems)
        code = strip_c(text)
        check_calls(path, code, problems)
        if path.suffix == ".h" and not re.match(r"\s*(/\*|//)", text):
            problems.append(f"{where(path)}: a header opens with a comment: what it is, who owns what, what may suspend")
    for path in files("*"):
        relative = str(path.relative_to(TOP))
        raw = path.read_bytes()
        if b"\0" in raw[:8000] or relative.startswith("test/fuzz/corpus/"):
            continue
        text = raw.decode("utf-8", errors="replace")
        lines = text.splitlines()
        if len(lines) > LINE_LIMIT and not LONG_ALLOWED.search(relative):
            problems.append(f"{relative}: {len(lines)} lines; over {LINE_LIMIT} it is split by subject")
        if relative.startswith("test/check/house_rules"):
            continue
        for number, line in enumerate(lines, 1):
            if MACHINE_PATH.search(line):
                problems.append(f"{relative}:{number}: names a folder of one machine: {line.strip()[:100]}")
            if REGISTRY.search(line):
                problems.append(f"{relative}:{number}: names a package registry's host: {line.strip()[:100]}")
        if lines and re.match(r"#!.*\b(ba|da)?sh\b", lines[0]) and "set -euo pipefail" not in text:
            problems.append(f"{relative}: a shell script says `set -euo pipefail` first")
        if lines and re.match(r"#!.*\b(da)?sh$", lines[0]) and not lines[0].endswith("bash"):
            problems.append(f"{relative}: shell scripts are written for bash")
    finish(problems)


main()
