"""Secrets over REST, and the search for a value in everything that a server keeps, prints or answers."""

import base64
import http.client
import json
import urllib.parse
from pathlib import Path

WINDOW, STRIDE = 8, 3  # ten characters of a value in a row are a leak


def rest(instance, method, path, body=None, key=None, raw=None, headers=None):
    """(status, parsed JSON or text) of one request."""
    connection = http.client.HTTPConnection("127.0.0.1", instance.port, timeout=60)
    data = raw if raw is not None else json.dumps(body).encode() if body is not None else None
    try:
        connection.request(method, path, body=data, headers={"Authorization": f"Bearer {key or instance.key()}",
                                                             "Content-Type": "application/json", **(headers or {})})
        answer = connection.getresponse()
        text = answer.read()
    finally:
        connection.close()
    try:
        return answer.status, json.loads(text)
    except ValueError:
        return answer.status, text.decode("utf-8", "replace")


def put(instance, name, value, **more):
    status, answer = rest(instance, "PUT", f"/v1/secrets/{name}", {"value": value}, **more)
    assert status == 200, answer
    return answer


def base64_cores(value: bytes):
    """What base64 of any text that holds the value must hold, in both alphabets."""
    for before in range(3):
        text = base64.b64encode(b"\0" * before + value).decode()
        core = text[(8 * before + 5) // 6: 8 * (before + len(value)) // 6]
        yield core
        yield core.replace("+", "-").replace("/", "_")


def needles(value: str):
    """Pieces of the value and of its encodings: any ten characters in a row hold one."""
    raw = value.encode()
    texts = {raw, json.dumps(value)[1:-1].encode(), urllib.parse.quote(value, safe="").encode(), raw.hex().encode(),
             raw.hex().upper().encode(), *(core.encode() for core in base64_cores(raw))}
    return {text[i:i + WINDOW] for text in texts for i in range(0, len(text) - WINDOW + 1, STRIDE)}


class Seen:
    """Everything that was answered, by where it came from."""

    def __init__(self):
        self.texts = []

    def add(self, where, thing):
        if not isinstance(thing, (bytes, str)):
            thing = json.dumps(thing, ensure_ascii=False, default=str)
        self.texts.append((where, thing if isinstance(thing, bytes) else thing.encode()))
        return thing

    def tool(self, client, name, arguments):
        result = client.tool(name, arguments, progress=f"{name}-{len(self.texts)}")
        self.add(name, {"content": result.content, "structured": result.data if not result.is_error else None,
                        "notes": [str(note) for note in result.notifications]})
        # The strings themselves as well: a value with quotes looks different in JSON.
        self.texts += [(name, text.encode()) for text in strings(result.content)]
        if not result.is_error:
            self.texts += [(name, text.encode()) for text in strings(result.data)]
            for key in ("outputUrl", "stderrUrl"):
                if result.data.get(key):
                    self.texts.append((f"{name} {key}", fetch(result.data[key])))
        return result


def strings(thing):
    if isinstance(thing, str):
        yield thing
        try:
            inner = json.loads(thing)
        except ValueError:
            return
        if isinstance(inner, (dict, list)):
            yield from strings(inner)
    elif isinstance(thing, dict):
        for value in thing.values():
            yield from strings(value)
    elif isinstance(thing, list):
        for value in thing:
            yield from strings(value)


def fetch(url):
    parts = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=60)
    try:
        connection.request("GET", parts.path + ("?" + parts.query if parts.query else ""))
        answer = connection.getresponse()
        body = answer.read()
        assert answer.status == 200, body
        return body
    finally:
        connection.close()


def kept(instance):
    """(where, bytes) of the state folder but for the boxes' own disks, of the log, and of the processes outside of boxes."""
    for path in sorted(instance.state.rglob("*")):
        inside = path.relative_to(instance.state).parts
        if inside[:2] == ("boxhost", "boxes") and len(inside) > 3:
            continue  # what lies in a box's folder is the box's disk; its spec.json is boxhost's
        if inside[:2] == ("boxhost", "images"):
            continue  # files of this machine, made before any box
        if path.is_file() and not path.is_symlink() and path.stat().st_size < 1 << 28 and path.name not in ("disk", "disk.img"):
            yield str(path), path.read_bytes()
    yield str(instance.log), instance.log.read_bytes()
    for pid in {instance.process.pid, instance.supervisor_pid(), instance.boxhost_pid()}:
        for name in ("cmdline", "environ"):
            yield f"{name} of {pid}", Path(f"/proc/{pid}/{name}").read_bytes()


def leaks(values, texts):
    """Where a piece of a value is, as "where: piece"."""
    unique, found = {}, []
    for where, text in texts:
        unique.setdefault(text, where)
    for value in values:
        for text, where in unique.items():
            for needle in needles(value):
                at = text.find(needle)
                if at >= 0:
                    found.append(f"{where}: …{text[max(0, at - 30):at + 40]!r}…")
                    break
    return found
