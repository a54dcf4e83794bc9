"""Files into a box over REST: sync, plan and prune, hostile archives, clients that vanish."""

import gzip
import hashlib
import http.client
import io
import json
import os
import socket
import struct
import tarfile

import pytest
from instance import until


def tar_of(*members, mode="w"):
    """Members are (name, bytes) or (name, dict of TarInfo fields[, bytes])."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode, format=tarfile.GNU_FORMAT) as tar:
        for name, *rest in members:
            info = tarfile.TarInfo(name)
            fields, data = (rest[0], rest[1] if len(rest) > 1 else b"") if isinstance(rest[0], dict) else ({}, rest[0])
            for key, value in fields.items():
                setattr(info, key, value)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def link(target):
    return {"type": tarfile.SYMTYPE, "linkname": target}


def hard(target):
    return {"type": tarfile.LNKTYPE, "linkname": target}


@pytest.fixture(scope="module")
def one(server):
    client = server.client()
    name = client.start(size="small")
    yield client, name
    client.stop(name)


def sync(one, dest, data, **headers):
    client, box = one
    status, _, body = client.rest("POST", f"/v1/boxes/{box}/sync?dest={dest}", data, headers=headers)
    return status, json.loads(body)


def sh(one, cmd):
    result = one[0].exec(one[1], cmd)
    assert result["exitCode"] == 0, result
    return result["stdout"]


def test_tar_and_gzip(one):
    members = [("a", b"1"), ("d/run", {"mode": 0o755}, b"#!/bin/sh\n"), ("l", link("a")), ("d/é", b"accent")]
    for dest, data in (("plain", tar_of(*members)), ("zipped", gzip.compress(tar_of(*members)))):
        status, answer = sync(one, dest, data)
        assert (status, answer["ok"], answer["dest"], answer["changed"]) == (200, True, dest, 4), answer
        assert sh(one, f"cd {dest} && cat a && stat -c %a d/run && readlink l && cat d/é") == "1755\na\naccent"
        status, answer = sync(one, dest, data)
        assert (status, answer["changed"]) == (200, 0), "what is the same is not written again"
    before = sh(one, "stat -c '%i %Y' plain/a plain/d/run")
    assert sync(one, "plain", tar_of(("a", b"1"), ("d/run", {"mode": 0o755}, b"#!/bin/sh\n#\n")))[1]["changed"] == 1
    after = sh(one, "stat -c '%i %Y' plain/a plain/d/run")
    assert before.splitlines()[0] == after.splitlines()[0] and before != after
    assert sh(one, "ls plain | wc -l") == "3\n", "it merges; nothing is removed"


def test_into_work_itself_and_absolute(one):
    assert sync(one, "/work/abs/x", tar_of(("f", b"1")))[1]["dest"] == "abs/x"
    assert sync(one, "/work", tar_of(("top-level", b"1")))[0] == 200
    assert sh(one, "cat abs/x/f top-level") == "11"


def test_a_repository_is_remembered(one):
    client, box = one
    client.rest("POST", f"/v1/boxes/{box}/sync?dest=r&repo=git%40host%3Ateam%2Fproject.git", tar_of(("f", b"1")))
    row = next(row for row in client.tool("sandbox_list", {})["boxes"] if row["id"] == box)
    assert row["repos"] == ["git@host:team/project.git"]
    step = client.tool("sandbox_status", {"id": box})["steps"][-1]
    assert step["tool"] == "sandbox_sync" and "error" not in step


@pytest.mark.parametrize("query", ["", "dest=../x", "dest=a/../../x", "dest=/etc", "dest=~", "dest=~/x", "dest=a//b", "dest=%00", "dest=a%00b",
                                   "dest=/workx", "dest=%ff%fe", "dest=" + "x/" * 2100 + "x"])
def test_a_bad_dest_is_refused_before_the_body(one, query):
    """Only the head is sent, with Expect: an answer means that nobody waits for the body."""
    client, box = one
    with socket.create_connection((client.parts.hostname, client.parts.port), timeout=20) as sock:
        sock.sendall(f"POST /v1/boxes/{box}/sync?{query} HTTP/1.1\r\nHost: {client.parts.netloc}\r\nAuthorization: Bearer {client.key}\r\n"
                     "Content-Type: application/x-tar\r\nContent-Length: 1000000000\r\nExpect: 100-continue\r\n\r\n".encode())
        answer = http.client.HTTPResponse(sock, method="POST")
        answer.begin()
        assert answer.status == 400, query
        body = json.loads(answer.read())
        assert "dest" in body["error"] and body["code"]


def test_a_dest_that_is_something_else(one):
    sh(one, "echo file > file; ln -sfn /etc out; ln -sfn file tofile")
    for dest in ("file/x", "out", "out/x"):
        status, answer = sync(one, dest, tar_of(("f", b"1")))
        assert status == 400, (dest, answer)
    assert sh(one, "cat file; ls /etc/f 2>/dev/null; true") == "file\n"


def test_unknown_stopped_and_wrong(one):
    client, _ = one
    assert client.rest("POST", "/v1/boxes/nosuchbox1/sync?dest=d", tar_of(("f", b"1")))[0] == 404
    box = client.start(size="small")
    client.stop(box)
    assert client.rest("POST", f"/v1/boxes/{box}/sync?dest=d", tar_of(("f", b"1")))[0] in (404, 409)
    status, answer = sync(one, "junk", b"this is no archive, however long it is " * 100)
    assert status == 400 and answer["error"]
    for cut in (100, 700, 1500):
        data = tar_of(("f", b"x" * 2000))[:cut]
        status, answer = sync(one, "cut", data)
        assert status == 400, (cut, answer)
    assert sh(one, "find cut junk -type f 2>/dev/null; true") == ""
    status, answer = sync(one, "cutgz", gzip.compress(tar_of(("f", os.urandom(100000))))[:-2000])
    assert status == 400, answer


HOSTILE = {
    "dotdot": [("../outside", b"evil")], "dotdot-inside": [("a/../../outside", b"evil")], "absolute": [("/work/outside", b"evil"), ("/etc/evil", b"evil")],
    "link-then-file": [("l", link("/work/victim")), ("l/secret", b"evil")], "relative-link": [("l", link("../victim")), ("l/new", b"evil")],
    "link-to-file": [("l", link("../outside")), ("l", b"evil")], "hard-link-out": [("h", hard("/work/outside")), ("h", b"evil")],
    "hard-link-up": [("h", hard("../outside")), ("h", b"evil")], "hard-through-link": [("l", link("..")), ("h", hard("l/outside")), ("h", b"evil")],
    "two-step": [("a", link(".")), ("a/b", link("..")), ("a/b/outside", b"evil")], "chain": [("x", link("y")), ("y", link("../victim")), ("x/secret", b"evil")],
    "device": [("null", {"type": tarfile.CHRTYPE, "devmajor": 1, "devminor": 3}), ("disk", {"type": tarfile.BLKTYPE, "devmajor": 8})],
}


@pytest.mark.parametrize("name", sorted(HOSTILE))
def test_hostile_archives_touch_nothing_outside(one, name):
    sh(one, "mkdir -p victim; echo precious > victim/secret; echo precious > outside")

    def state():
        return sh(one, "stat -c '%n %i %Z %s' outside victim victim/secret; cat outside victim/secret; ls victim /etc | sort; find /work -type b -o -type c")

    before = state()
    status, answer = sync(one, f"hostile-{name}", tar_of(*HOSTILE[name]))
    assert state() == before
    if name not in ("link-to-file",):
        assert (status == 400) or answer["refused"], answer
    for member in HOSTILE[name]:  # the same over several uploads
        status, _ = sync(one, f"steps-{name}", tar_of(member))
        assert status in (200, 400)
    assert state() == before
    assert sync(one, f"steps-{name}", tar_of(("fine", b"1")))[0] == 200


def head_of(client, path, length, **more):
    lines = [f"POST {path} HTTP/1.1", f"Host: {client.parts.netloc}", f"Authorization: Bearer {client.key}", f"Content-Length: {length}"]
    return "\r\n".join(lines + [f"{key}: {value}" for key, value in more.items()] + ["", ""]).encode()


@pytest.mark.parametrize("reset", [False, True])
def test_a_client_that_vanishes(one, reset):
    client, box = one
    dest = f"vanish-{reset}"
    sh(one, f"mkdir -p {dest}; echo old > {dest}/second")
    data = tar_of(("first", b"1" * 5000), ("second", b"2" * 3000000), ("third", b"3"))
    sock = socket.create_connection((client.parts.hostname, client.parts.port), timeout=20)
    sock.sendall(head_of(client, f"/v1/boxes/{box}/sync?dest={dest}", len(data)) + data[:1000000])
    until(lambda: sh(one, f"ls {dest}/first 2>/dev/null; true"))
    if reset:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()
    until(lambda: any(step.get("error") for step in client.tool("sandbox_status", {"id": box})["steps"]
                      if step["tool"] == "sandbox_sync" and step["directory"] == dest))
    until(lambda: sh(one, f"ls -A {dest}") == "first\nsecond\n")
    assert sh(one, f"cat {dest}/second; wc -c < {dest}/first") == "old\n5000\n", "whole files only, and the old one stays"
    assert sync(one, dest, data)[1]["changed"] == 2
    assert sh(one, f"wc -c < {dest}/second") == "3000000\n"


def test_chunked_and_slow(one):
    client, box = one
    data = gzip.compress(tar_of(("f", os.urandom(200000))))
    with socket.create_connection((client.parts.hostname, client.parts.port), timeout=30) as sock:
        sock.sendall(f"POST /v1/boxes/{box}/sync?dest=chunked HTTP/1.1\r\nHost: {client.parts.netloc}\r\nAuthorization: Bearer {client.key}\r\n"
                     "Transfer-Encoding: chunked\r\n\r\n".encode())
        for at in range(0, len(data), 7919):
            piece = data[at:at + 7919]
            sock.sendall(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
        sock.sendall(b"0\r\n\r\n")
        answer = http.client.HTTPResponse(sock, method="POST")
        answer.begin()
        assert answer.status == 200
        assert json.loads(answer.read())["changed"] == 1


# --- plan and prune ---------------------------------------------------------------------------------------------------
def entry(path, content=None, target=None, executable=False):
    body = target.encode() if target is not None else content
    kind = 2 if target is not None else 1 if executable else 0
    raw = os.fsencode(path)
    return struct.pack("<BQ", kind, len(body)) + hashlib.blake2b(body, digest_size=32).digest() + struct.pack("<H", len(raw)) + raw


def plan(one, dest, entries):
    client, box = one
    status, _, body = client.rest("POST", f"/v1/boxes/{box}/plan?dest={dest}", b"".join(entries))
    assert status == 200, body
    size = struct.unpack("<I", body[:4])[0]
    return json.loads(body[4:4 + size]), list(struct.unpack(f"<{(len(body) - 4 - size) // 4}I", body[4 + size:]))


def test_plan_then_send_then_prune(one):
    entries = [entry("a", b"1"), entry("b/run", b"#!", executable=True), entry("c", target="a"), entry("d é", b"")]
    head, need = plan(one, "pl", entries)
    assert (head["exists"], head["entries"], need) == (False, 4, [0, 1, 2, 3])
    sync(one, "pl", tar_of(("a", b"1"), ("b/run", {"mode": 0o755}, b"#!"), ("c", link("a")), ("d é", b""), ("extra/x", b"1"), ("extra2", b"2")))
    head, need = plan(one, "pl", entries)
    assert (head["exists"], need, head["extraCount"]) == (True, [], 2)
    sh(one, "echo 2 > pl/a; chmod 644 pl/b/run")
    assert plan(one, "pl", entries)[1] == [0, 1]
    client, box = one
    status, _, body = client.rest("POST", f"/v1/boxes/{box}/prune?dest=pl", b"extra/x\0extra2\0missing\0")
    answer = json.loads(body)
    assert (status, answer["pruned"]) == (200, 2)
    assert sh(one, "ls pl") == "a\nb\nc\nd é\n", "folders that became empty go too"


def test_prune_stays_beneath(one):
    client, box = one
    sh(one, "mkdir -p pr victim; echo precious > victim/secret; ln -sfn ../victim pr/out; echo x > top")
    for path in (b"../victim/secret", b"out/secret", b"/work/victim/secret", b"../top", b"", b"."):
        status, _, body = client.rest("POST", f"/v1/boxes/{box}/prune?dest=pr", path + b"\0")
        assert status in (200, 400)
        assert status == 400 or json.loads(body)["pruned"] == 0, path
    assert client.rest("POST", f"/v1/boxes/{box}/prune?dest=/work", b"top\0")[0] == 400
    assert sh(one, "cat victim/secret top") == "precious\nx\n"


def test_malformed_plans(one):
    client, box = one
    for body in (b"x", b"\0" * 30, entry("a", b"1")[:-1], entry("../a", b"1"), entry("/a", b"1"), b"\xff" * 5000):
        status, _, answer = client.rest("POST", f"/v1/boxes/{box}/plan?dest=pl", body)
        assert status == 400, (body[:40], answer)
        assert json.loads(answer)["error"]
    assert client.exec(box, "echo fine")["stdout"] == "fine\n"
