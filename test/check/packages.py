#!/usr/bin/env python3
"""packages.txt is the one list of packages: the manifests of the test peers and meson's needs agree with it."""

import json
import re

from _tree import TOP, files, finish

# what meson asks pkg-config for -> the package of packages.txt that has it
DEV_PACKAGES = {
    "libuv": "libuv1-dev", "openssl": "libssl-dev", "json-c": "libjson-c-dev", "libsodium": "libsodium-dev",
    "sqlite3": "libsqlite3-dev", "libcurl": "libcurl4-openssl-dev", "libarchive": "libarchive-dev",
    "libisal": "libisal-dev", "libzstd": "libzstd-dev", "libseccomp": "libseccomp-dev",
    "libcap": "libcap-dev", "libmnl": "libmnl-dev", "cmocka": "libcmocka-dev", "zlib": "zlib1g-dev",
    "spng": "libspng-dev", "libturbojpeg": "libturbojpeg0-dev", "libpq": "libpq-dev", "wslay": "libwslay-dev", "http_parser": "libhttp-parser-dev",
}


def sections():
    found, current = {}, None
    for line in (TOP / "packages.txt").read_text().splitlines():
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        if line.startswith("["):
            current = found.setdefault(line.strip("[]"), [])
        else:
            current.append(line)
    return found


def main():
    problems = []
    listed = sections()
    for line in listed["npm-test"] + listed["npm-build"]:
        folder, *packages = line.split()
        base = TOP / "web" / "app" if folder == "app" else TOP / "test" / "e2e" / "peers" / folder
        manifest = json.loads((base / "package.json").read_text())["dependencies"]
        wanted = dict(package.rsplit("@", 1) for package in packages)
        if manifest != wanted:
            problems.append(f"packages.txt and {folder}/package.json differ: {wanted} and {manifest}")
        lock = (base / "package-lock.json").read_text()
        if '"resolved"' in lock:
            problems.append(f"{folder}/package-lock.json holds download addresses")
        if json.loads(lock)["packages"][""]["dependencies"] != wanted:
            problems.append(f"{folder}/package-lock.json is not made from packages.txt")

    names = {name for lines in listed.values() for line in lines for name in re.split(r"[|\s]+", line.split("?")[0])}
    asked = {}
    for path in files("meson.build", "*/meson.build", "**/meson.build"):
        for name in re.findall(r"(?:dependency|find_library)\('([^']+)'", path.read_text()):
            asked.setdefault(name, path)
    for name, path in sorted(asked.items()):
        if name in ("threads", "m"):
            continue
        package = DEV_PACKAGES.get(name)
        if package is None:
            problems.append(f"{path.relative_to(TOP)} asks for {name}: say in test/check/packages.py which package has it")
        elif package not in names:
            problems.append(f"{path.relative_to(TOP)} asks for {name}, but packages.txt does not list {package}")
    for name, package in DEV_PACKAGES.items():
        if package in names and name not in asked:
            problems.append(f"packages.txt lists {package}, which no meson.build asks for")
    finish(problems)


main()
