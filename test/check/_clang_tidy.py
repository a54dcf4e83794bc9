"""Runs clang-tidy on each file of src/ that is built, several at a time, and remembers which files were clean.

A clean file is skipped while neither it, nor any header of the tree, nor the configuration has changed."""

import hashlib
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from _tree import TOP, files

BUILD = TOP / "build"
MEMORY = BUILD / "clang-tidy-clean.json"


def main():
    jobs = int(sys.argv[1])
    version = subprocess.run(["clang-tidy", "--version"], stdout=subprocess.PIPE, check=True).stdout
    shared = hashlib.sha256(version + (TOP / ".clang-tidy").read_bytes())
    for header in files("*.h", "**/*.h"):
        shared.update(header.read_bytes())
    sources = {}
    for entry in json.loads((BUILD / "compile_commands.json").read_text()):
        path = (BUILD / entry["file"]).resolve()
        if path.is_relative_to(TOP / "src") and path.suffix == ".c":
            command = entry.get("command") or " ".join(entry["arguments"])
            sources.setdefault(path, command)
    clean = {}
    if MEMORY.exists():
        clean = json.loads(MEMORY.read_text())
    keys = {}
    for path, command in sources.items():
        digest = shared.copy()
        digest.update(path.read_bytes() + command.encode())
        keys[path] = digest.hexdigest()
    todo = sorted(path for path in sources if clean.get(str(path.relative_to(TOP))) != keys[path])

    def check(path):
        done = subprocess.run(["clang-tidy", "-p", str(BUILD), "--quiet", "--extra-arg=-Wno-unknown-warning-option", str(path)],
                              cwd=TOP, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
        bad = done.returncode != 0 or "warning:" in done.stdout or "error:" in done.stdout
        return path, bad, done.stdout + (done.stderr if done.returncode != 0 else "")

    failed = 0
    with ThreadPoolExecutor(jobs) as pool:
        for path, bad, output in pool.map(check, todo):
            if bad:
                failed += 1
                print(output.replace(str(TOP) + "/", ""))
                clean.pop(str(path.relative_to(TOP)), None)
            else:
                clean[str(path.relative_to(TOP))] = keys[path]
    MEMORY.write_text(json.dumps(clean))
    sys.exit(1 if failed else 0)


main()
