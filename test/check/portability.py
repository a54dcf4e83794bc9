#!/usr/bin/env python3
"""The adapter runs on other systems than the server: what it is built from is plain POSIX, with a few things that every
BSD and macOS has too (docs/adapter.md, "Elsewhere than on Linux").

Each of its sources is compiled (without making anything) as if this were no Linux: __linux__ is undefined, so every branch
for it falls away, and the C library shows POSIX and the common BSD extensions, but nothing of GNU's. Then no header may be
left that only Linux has.
"""

import re
import subprocess

from _tree import TOP, finish

FOLDERS = ("base", "loop", "guest", "http", "sync", "adapter")
# The server's side of http/: nothing of the adapter uses websockets.
LEFT_OUT = {"src/http/ws.c"}
MAIN = "src/main/parallelsandbox-mcp.c"
FLAGS = ["-std=c11", "-fsyntax-only", "-w", "-Werror=implicit-function-declaration", "-Werror=implicit-int", "-Isrc", '-DPSBX_VERSION="0"',
         "-U__linux__", "-U__linux", "-Ulinux", "-U__gnu_linux__", "-D_DEFAULT_SOURCE", "-D_POSIX_C_SOURCE=200809L"]
LINUX_ONLY = re.compile(r"<(linux/.*|sys/(epoll|eventfd|inotify|prctl|signalfd|timerfd|syscall|sendfile|fsuid|capability|pidfd)\.h)>")
MARKER = re.compile(r'# \d+ "([^"]*)"')
INCLUDE = re.compile(r"\s*#\s*include\s+(<[^>]+>)")
# Names that compile here whatever the branch.
LINUX_NAMES = {r"\bO_PATH\b": "only Linux has it", r"\bpipe2\b": "pipe and fcntl elsewhere", r"\baccept4\b": "accept and fcntl elsewhere"}


def without_linux(path):
    """The source after its conditions, with its own lines and includes only."""
    done = subprocess.run(["cc", *FLAGS[:1], *FLAGS[2:], "-E", "-dI", path], cwd=TOP, capture_output=True, text=True, check=False)
    current, kept = "", []
    for line in done.stdout.splitlines():
        marker = MARKER.match(line)
        if marker:
            current = marker.group(1)
        elif current.endswith(path) or current.startswith("src/"):
            kept.append(line)
    return kept


def check(path):
    errors = []
    done = subprocess.run(["cc", *FLAGS, path], cwd=TOP, capture_output=True, text=True, check=False)
    errors += [line for line in done.stderr.splitlines() if "error:" in line]
    for line in without_linux(path):
        include = INCLUDE.match(line)
        if include and LINUX_ONLY.match(include.group(1)):
            errors.append(f"{path}: includes {include.group(1)}, which only Linux has")
        for name, instead in LINUX_NAMES.items():
            if re.search(name, line):
                errors.append(f"{path}: {line.strip()[:80]} ({instead})")
    return errors


def main():
    sources = [str(p.relative_to(TOP)) for folder in FOLDERS for p in sorted((TOP / "src" / folder).glob("*.c"))]
    errors = []
    for path in [s for s in sources if s not in LEFT_OUT] + [MAIN]:
        errors += check(path)
    finish(errors)


if __name__ == "__main__":
    main()
