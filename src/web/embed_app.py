#!/usr/bin/env python3
"""Turns the app's files into one C table: embed_app.py HEADER SOURCE TOP FILE...

The files are modules that run as they are; nothing is bundled. Each gets an address with a hash of its content in it, so
a browser keeps it for ever, and what refers to it ('./x.js' in a module, in the page or in the manifest) is written anew
with that address, from the leaves up. Bare imports ('lit-html', 'lit-html/directives/x.js') are taken from the npm package
at its pinned version, with whatever those files import. Everything is compressed here, once. Texts are checked: every
language has the same keys, the same {names} in each, and no key is without a use.
"""
import gzip
import hashlib
import json
import re
import sys
from pathlib import Path

header, source, top, *names = sys.argv[1:]
TOP = Path(top)
BASE = "/app/a/"
sys.path.insert(0, str(TOP / "scripts"))
import peers  # noqa: E402

APP = TOP / "web" / "app"
NPM = peers.peer_dir("app") / "node_modules"
TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml",
         ".json": "application/json", ".webmanifest": "application/manifest+json", ".html": "text/html; charset=utf-8"}
# What is asked for by name, and so must be asked for again each time.
PLAIN = {"index.html": "/app/", "sw.js": "/app/sw.js", "manifest.webmanifest": "/app/manifest.webmanifest"}

if not peers.installed("app"):
    sys.exit("lit-html is not installed: run `make deps`")


def no_duplicates(pairs):
    keys = [key for key, _ in pairs]
    if len(keys) != len(set(keys)):
        sys.exit(f"a text is there twice: {sorted(k for k in keys if keys.count(k) > 1)}")
    return dict(pairs)


def resolve(path, reference):
    """The file that a reference in a file names, or None when it is no reference to one of ours."""
    if reference.startswith("."):
        found = (path.parent / reference).resolve()
    elif re.fullmatch(r"lit-html(/[\w/.-]+\.js)?", reference):
        found = NPM / (reference if "/" in reference else "lit-html/lit-html.js")
    else:
        return None
    if not found.is_file():
        sys.exit(f"{path}: {reference} does not exist")
    return found


# In our own modules references to files start with a dot; a package is named in an import only.
REFERENCE = re.compile(r"""(?P<q>["'])(?P<name>\.{1,2}/[\w./-]+|lit-html(?:/[\w./-]+)?)(?P=q)""")
built, running, imports = {}, [], {}


def build(path):
    """Address and bytes of a file, with all that it refers to."""
    if path in built:
        return built[path]
    if path in running:
        sys.exit(f"{path} imports itself, by way of {[p.name for p in running]}")
    running.append(path)
    data = path.read_bytes()
    imports[path] = []
    if path.suffix in (".js", ".html", ".webmanifest"):
        text = re.sub(r"\n//# sourceMappingURL=.*\s*$", "\n", data.decode())

        def replace(match):
            before = text[max(0, match.start() - 8):match.start()]
            imported = re.search(r"(from|import)\s*$", before)
            found = resolve(path, match["name"]) if imported or match["name"].startswith(".") else None
            if not found:
                return match.group(0)
            if found.suffix == ".js" and not before.rstrip().endswith("import("):
                imports[path].append(found)  # a later part of the app is not loaded ahead
            return match["q"] + build(found)[0] + match["q"]

        if path.name == "sw.js":
            text = text.replace("'SHELL'", json.dumps(shell()))
        text = REFERENCE.sub(replace, text)
        if path.name == "index.html":
            links = "\n  ".join(f'<link rel="modulepreload" href="{build(p)[0]}">' for p in reachable(APP / "main.js"))
            text = text.replace("<!-- modules -->", links)
        data = text.encode()
    elif path.suffix == ".json":
        data = json.dumps(json.loads(data), ensure_ascii=False, separators=(",", ":")).encode()
    digest = hashlib.sha256(data).hexdigest()[:12]
    address = PLAIN.get(path.name, f"{BASE}{path.stem}-{digest}{path.suffix}")
    running.pop()
    built[path] = address, data, digest
    return built[path]


def reachable(path, seen=None):
    seen = [] if seen is None else seen
    if path not in seen:
        build(path)
        seen.append(path)
        for other in imports[path]:
            reachable(other, seen)
    return seen


def shell():
    """What the app needs to start without a network: everything but what is loaded later."""
    files = reachable(APP / "main.js") + [APP / "style" / "app.css", TOP / "web" / "tokens.css", TOP / "web" / "pages" / "icon.svg"]
    files += [APP / "text" / f"{language}.json" for language in texts]
    return [build(path)[0] for path in files]


def check_texts():
    used = set()
    for name in names:
        if name.endswith(".js"):
            for key in re.findall(r"\bt\(\s*'([\w.]+)'", Path(name).read_text()):
                used.add(key)
            # Keys that are put together, `state_${name}`, must start with a word that texts have.
            for start in re.findall(r"\bt\(\s*`([\w.]+)\$\{", Path(name).read_text()):
                if not any(key.startswith(start) for key in texts["en"]):
                    sys.exit(f"{name}: no text starts with {start}")
                used |= {key for key in texts["en"] if key.startswith(start)}
    for language, catalogue in texts.items():
        if catalogue.keys() != texts["en"].keys():
            sys.exit(f"{language}: texts differ from en: {sorted(catalogue.keys() ^ texts['en'].keys())}")
        for key, text in catalogue.items():
            if sorted(set(re.findall(r"\{\w+\}", text))) != sorted(set(re.findall(r"\{\w+\}", texts["en"][key]))):
                sys.exit(f"{language}: {key} has other names in it than en")
    plain = {re.sub(r"_(one|other)$", "", key) for key in texts["en"]} | texts["en"].keys()
    if used - plain:
        sys.exit(f"texts that do not exist: {sorted(used - plain)}")
    unused = {key for key in texts["en"] if key not in used and re.sub(r"_(one|other)$", "", key) not in used}
    if unused:
        sys.exit(f"texts that nothing uses: {sorted(unused)}")


texts = {Path(name).stem: json.loads(Path(name).read_text(), object_pairs_hook=no_duplicates) for name in names if "/text/" in name}
check_texts()
for name in names:
    build(Path(name).resolve())

rows, arrays = [], []
for number, (path, (address, data, digest)) in enumerate(sorted(built.items(), key=lambda item: item[1][0])):
    packed = gzip.compress(data, 9, mtime=0)
    body = ",\n".join(", ".join(str(b) for b in packed[i:i + 24]) for i in range(0, len(packed), 24))
    arrays.append(f"static const unsigned char file_{number}[] = {{\n{body}\n}};\n")
    fixed = "false" if path.name in PLAIN else "true"
    rows.append(f'        {{ "{address}", "{TYPES[path.suffix]}", "\\"{digest}\\"", {fixed}, file_{number}, {len(packed)}, {len(data)} }},\n')
first = sum(len(gzip.compress(built[p][1], 9, mtime=0)) for p in
            set(reachable(APP / "main.js")) | {APP / "index.html", APP / "style" / "app.css", TOP / "web" / "tokens.css", APP / "text" / "ja.json"})
if first > 60000:
    sys.exit(f"the first load is {first} bytes, compressed; 60,000 is what it may be")

Path(header).write_text("""#pragma once
#include <stdbool.h>
#include <stddef.h>
struct app_file {
        const char *path, *type, *etag;
        bool fixed; /* its address changes with its content */
        const unsigned char *gz;
        size_t gz_len, len;
};
extern const struct app_file app_files[];
extern const size_t app_files_count;
""")
Path(source).write_text(f'#include "{Path(header).name}"\n' + "".join(arrays) + "const struct app_file app_files[] = {\n" + "".join(rows) +
                        f"}};\nconst size_t app_files_count = {len(rows)};\n")
print(f"app: {len(rows)} files, first load {first} bytes compressed")
