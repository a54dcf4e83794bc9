"""boxd moves files in and out: put, get, diff, prune."""

import base64
import gzip
import io
import json
import os
import random
import tarfile
import time

import pytest

from guestproto import DATA, entry, wait_until
from boxdbox import box, fresh, sh, tar_of  # noqa: F401 (fixtures)


# ---------------------------------------------------------------- put

def link(target):
    return {"type": tarfile.SYMTYPE, "linkname": target}


def hard(target):
    return {"type": tarfile.LNKTYPE, "linkname": target}


def test_put_and_get_round_trip(box):
    members = [("d", {"type": tarfile.DIRTYPE, "mode": 0o755}), ("d/a.txt", b"hello"), ("d/run.sh", {"mode": 0o755}, b"#!/bin/sh\n"),
               ("d/l", link("a.txt")), ("d/dangling", link("/nowhere/at/all")), ("d/empty", b""),
               ("d/" + "long/" * 60 + "x" * 200, b"deep"), ("d/._a.txt", b"apple double"), ("d/日本語 \n\t.txt", b"unicode")]
    r = box.put("rt", tar_of(*members))
    assert "error" not in r and r["files"] == 8 and r["changed"] == 8 and r["refused"] == [], dict(r)
    assert sh(box, "cd rt/d; cat a.txt l; readlink dangling; ./run.sh; stat -c %a a.txt run.sh") == \
        "hellohello/nowhere/at/all\n644\n755\n"
    for gz in (True, False):
        r = box.get("rt/d", gzip=gz)
        assert r.events[0]["type"] == "dir" and r.events[0]["name"] == "d" and not r["changedWhileReading"]
        assert r["bytes"] == len(r.data)
        with tarfile.open(fileobj=io.BytesIO(r.data)) as t:
            names = t.getnames()
            assert names[0] == "d" and "d/日本語 \n\t.txt" in names and "d/" + "long/" * 60 + "x" * 200 in names
            assert t.extractfile("d/a.txt").read() == b"hello"
            assert t.getmember("d/dangling").linkname == "/nowhere/at/all"
            assert t.getmember("d/run.sh").mode == 0o755
    r = box.get("rt/d/a.txt")
    assert r.data == b"hello" and r.events[0]["type"] == "file" and r.events[0]["size"] == 5


def test_names_that_are_no_utf8(box):
    name = b"n/\xff\xfe\x80 x".decode("utf-8", "surrogateescape")
    for fmt in (tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT):
        r = box.put("raw", tar_of((name, b"raw"), (name + "y" * 150, b"long") if fmt != tarfile.USTAR_FORMAT else ("n/z", b""),
                                  fmt=tarfile.GNU_FORMAT if fmt == tarfile.PAX_FORMAT else fmt))
        assert "error" not in r and r["refused"] == []
    assert b"\xff\xfe\x80 x" in box.exec("ls raw/n").stdout
    assert box.diff("raw", [entry(b"n/\xff\xfe\x80 x", b"raw")]).need == []
    r = box.get("raw")
    with tarfile.open(fileobj=io.BytesIO(r.data), encoding="utf-8", errors="surrogateescape") as t:
        assert "raw/" + name in t.getnames()
    assert box.op("prune", _data=b"n/\xff\xfe\x80 x\0", dest="raw")["pruned"] == 1


def test_unchanged_files_are_left_alone(box):
    t = tar_of(("keep/a", b"same"), ("keep/b", b"x" * 400000), ("keep/s", link("a")))
    box.put("un", t)
    before = sh(box, "sleep 0.05; stat -c '%n %i %Y.%y %z' un/keep/*")
    r = box.put("un", gzip.compress(t))
    assert r["changed"] == 0 and r["files"] == 3
    assert sh(box, "stat -c '%n %i %Y.%y %z' un/keep/*") == before
    r = box.put("un", tar_of(("keep/a", b"SAME"), ("keep/b", b"x" * 399999 + b"y"), ("keep/s", link("b"))))
    assert r["changed"] == 3
    assert sh(box, "cat un/keep/a; tail -c 2 un/keep/b; readlink un/keep/s; ls -A un/keep | wc -l") == "SAMExyb\n3\n"
    r = box.put("un", tar_of(("keep/a", {"mode": 0o755}, b"SAME")))
    assert r["changed"] == 1 and sh(box, "stat -c %a un/keep/a") == "755\n"


def test_setuid_is_stripped_and_owner_is_root(box):
    box.put("su", tar_of(("x", {"mode": 0o6755, "uid": 1234, "gid": 1234}, b"#!"),
                         ("d", {"type": tarfile.DIRTYPE, "mode": 0o7777})))
    assert sh(box, "stat -c '%a %u %g' su/x") == "755 0 0\n"
    assert sh(box, "stat -c '%a' su/d") == "777\n"


def hostile_state(box):
    return sh(box, "find /work/outside.txt /work/victim /etc /tmp /dev/shm -printf '%p %y %m %s %n %l\\n' 2>/dev/null | sort; "
                   "cat /work/outside.txt /work/victim/secret; stat -c '%Y %Z' /work/outside.txt")


HOSTILE = {
    "dotdot": [("../outside.txt", b"evil")],
    "dotdot inside": [("a/../../outside.txt", b"evil")],
    "absolute": [("/work/outside.txt", b"evil"), ("/etc/evil", b"evil")],
    "link then file": [("l", link("/work/victim")), ("l/secret", b"evil")],
    "link then dir": [("l", link("../victim")), ("l/", {"type": tarfile.DIRTYPE}), ("l/x/y", b"evil")],
    "link to file then file": [("l", link("../outside.txt")), ("l", b"evil")],
    "hard link out": [("h", hard("/work/outside.txt")), ("h", b"evil")],
    "hard link dotdot": [("h", hard("../outside.txt")), ("h", b"evil")],
    "hard link through link": [("l", link("..")), ("h", hard("l/outside.txt")), ("h", b"evil")],
    "hard link to link": [("l", link("../outside.txt")), ("h", hard("l")), ("h", b"evil")],
    "two-step": [("a", link(".")), ("a/b", link("..")), ("a/b/outside.txt", b"evil")],
    "chain": [("x", link("y")), ("y", link("../victim")), ("x/secret", b"evil")],
    "dot link": [("d", link("..")), ("d/../outside.txt", b"evil")],
    "deep": [("/".join(["d"] * 600), b"evil")],
}


@pytest.mark.parametrize("name", sorted(HOSTILE))
def test_hostile_archives_change_nothing_outside(box, name):
    dest = "hostile-" + name.replace(" ", "-")
    sh(box, "mkdir -p victim; echo precious > victim/secret; echo precious > outside.txt; sleep 0.02")
    before = hostile_state(box)
    r = box.put(dest, tar_of(*HOSTILE[name]) if name != "deep" else tar_of(*HOSTILE[name], fmt=tarfile.GNU_FORMAT))
    assert hostile_state(box) == before
    if name not in ("link to file then file", "hard link to link"):
        assert r["refused"], dict(r)
    if name not in ("link to file then file", "deep", "hard link to link"):
        assert r["code"] == "EXDEV" and r["error"]
    # and the same in two uploads, one member each time
    for m in HOSTILE[name]:
        box.put(dest + "-2", tar_of(m, fmt=tarfile.GNU_FORMAT))
    assert hostile_state(box) == before


def test_dest_that_is_a_link(box):
    sh(box, "ln -sfn victim destlink; ln -sfn /etc destout; mkdir -p victim")
    before = hostile_state(box)
    for dest in ("destlink", "destout", "destout/x", "../x", "/etc", "a//b", "./a", ""):
        r = box.put(dest, tar_of(("evil", b"evil")))
        assert ("error" in r) == (dest != ""), (dest, dict(r))
    assert hostile_state(box) == before
    sh(box, "rm -f /work/evil")


def test_devices_are_refused_and_the_rest_goes_on(box):
    members = [("ok1", b"1"), ("chr", {"type": tarfile.CHRTYPE, "devmajor": 1, "devminor": 3}),
               ("blk", {"type": tarfile.BLKTYPE, "devmajor": 8}), ("fifo", {"type": tarfile.FIFOTYPE}), ("ok2", b"2")]
    r = box.put("dev", tar_of(*members))
    assert "error" not in r and [x["path"] for x in r["refused"]] == ["chr", "blk", "fifo"]
    assert sh(box, "ls -A dev") == "ok1\nok2\n"


def test_what_is_in_the_way(box):
    sh(box, "rm -rf way; mkdir -p way/dir/sub way/empty; echo f > way/file; ln -s /etc way/link; echo x > way/dir/sub/x; "
            "mkfifo way/fifo")
    r = box.put("way", tar_of(("file/in", b"1"), ("link/in", b"2"), ("dir", b"3"), ("empty", b"4"), ("fifo", b"5")))
    assert "error" not in r and [x["path"] for x in r["refused"]] == ["dir"], dict(r)
    assert sh(box, "cat way/file/in way/link/in way/empty way/fifo; ls /etc/in 2>/dev/null; true") == "1245"
    r = box.put("way", tar_of(("dir", b"3")), replaceDirs=True)
    assert "error" not in r and sh(box, "cat way/dir") == "3"
    r = box.put("way", tar_of(("file", link("elsewhere"))), replaceDirs=True)
    assert "error" not in r and sh(box, "readlink way/file") == "elsewhere\n"


def test_hard_links_within_the_archive(box):
    r = box.put("hl", tar_of(("a", b"one"), ("sub/b", hard("a")), ("gone", hard("nothing"))))
    assert "error" not in r and [x["path"] for x in r["refused"]] == ["gone"]
    assert sh(box, "stat -c %h hl/a hl/sub/b") == "2\n2\n"
    sh(box, "echo precious > /work/out2; ln -f /work/out2 hl/shared")
    box.put("hl", tar_of(("shared", {"mode": 0o755}, b"precious\n")))
    assert sh(box, "stat -c '%a %h' /work/out2") == "644 1\n"
    box.put("hl", tar_of(("a", b"two")))
    assert sh(box, "cat hl/sub/b") == "one"


@pytest.mark.parametrize("seed", range(8))
def test_many_small_files_are_as_written_one_by_one(box, seed):
    """Files are written side by side: the result is that of one after the other, whatever stands in whose way."""
    draw = random.Random(seed)
    parts = "abc"[:draw.randrange(1, 4)]

    def path(last):
        return "/".join([*(draw.choice(parts) for _ in range(draw.randrange(0, 3))), last])

    members = []
    for _ in range(400):
        kind = draw.random()
        if kind < 0.9:
            size = draw.choice((0, 1, 100, 5000, 70000 if draw.random() < 0.05 else 7))
            members.append((path(draw.choice((*parts, "f", "g"))), {"mode": draw.choice((0o644, 0o755))}, draw.randbytes(size)))
        elif kind < 0.94:
            members.append((path(draw.choice(parts)), {"type": tarfile.DIRTYPE, "mode": 0o755}))
        elif kind < 0.97:
            members.append((path("link"), link(draw.choice(("a", "f", "../g", "nowhere")))))
        else:
            members.append((path("hard"), hard(draw.choice(members)[0] if members else "f")))
    at_once = box.put(f"together{seed}", tar_of(*members))
    refused = files = 0
    for member in members:
        r = box.put(f"apart{seed}", tar_of(member))
        refused += r["refusedCount"]
        files += r["files"]
    look = f"cd {{}}{seed}; find . -printf '%p %y %m %l\\n' | sort; find . -type f | sort | xargs -r sha256sum; ls -aR | grep -c part"
    assert sh(box, look.format("together") + "; true") == sh(box, look.format("apart") + "; true")
    assert (at_once["refusedCount"], at_once["files"]) == (refused, files)


def test_single_file(box):
    r = box.put("single/deep/name.txt", tar_of(("whatever", b"content")), single=True)
    assert "error" not in r and sh(box, "cat single/deep/name.txt") == "content"
    r = box.put("single/n2", tar_of(("a", b"1"), ("b", b"2")), single=True)
    assert [x["path"] for x in r["refused"]] == ["b"] and sh(box, "cat single/n2; ls single") == "1deep\nn2\n"


@pytest.mark.parametrize("data, word", [
    (b"this is no tar" * 100, "checksum"), (b"\x1f\x8b" + b"junk" * 100, "gzip"), (b"x", "cut off"),
    (tar_of(("a", b"x" * 5000))[:2000], "cut off"), (gzip.compress(tar_of(("a", b"x" * 5000)))[:-5], "cut off"),
])
def test_damaged_archives(box, data, word):
    r = box.put("damaged", data)
    assert r["code"] == "EPROTO" and word in r["error"], dict(r)
    assert sh(box, "cd damaged; stat -c %s a 2>/dev/null; ls -A | grep -c part; true") in ("0\n", "5000\n0\n")


def test_concatenated_gzip_members_and_one_byte_frames(box):
    t = tar_of(("cat/a", b"x" * 3000), ("cat/b", b"y" * 3000))
    r = box.put("gzcat", gzip.compress(t[:700]) + gzip.compress(t[700:]) + b"\0" * 100)
    assert "error" not in r and r["files"] == 2
    c = box.connect()
    c.head("put", dest="bytes", format="tar")
    c.send_stream(DATA, t[:3000], piece=1)
    c.close()
    c = box.connect()
    c.head("put", dest="bytes", format="tar")
    c.send_stream(DATA, gzip.compress(t), piece=1)
    assert c.result()["files"] == 2
    assert box.put("nothing", b"")["files"] == 0


@pytest.mark.parametrize("cut", [100, 700, 300_000, 1_500_000])
def test_client_that_vanishes_mid_upload(box, cut):
    sh(box, "rm -rf vanish; mkdir vanish; echo old > vanish/b")
    t = tar_of(("a", b"a" * 100), ("b", os.urandom(1_000_000)), ("c", os.urandom(1_000_000)), ("d", b"d"))
    c = box.connect()
    c.head("put", dest="vanish", format="tar")
    for i in range(0, cut, 100_000):
        c.send(DATA, t[i:min(cut, i + 100_000)])
    c.close()
    assert wait_until(lambda: ".part" not in sh(box, "sleep 0.05; ls -A vanish"))
    sizes = dict(x.split() for x in sh(box, "cd vanish; stat -c '%n %s' *").splitlines())
    assert all(int(v) in ({"a": [100], "b": [4, 1_000_000], "c": [1_000_000], "d": [1]}[k]) for k, v in sizes.items()), sizes


# ---------------------------------------------------------------- get

def test_get_refuses_what_leads_out_or_is_no_file(box):
    sh(box, "mkdir -p g; ln -sfn /etc/passwd g/out; ln -sfn ../../etc/passwd g/out2; echo in > g/in; ln -sfn in g/l; "
            "mkfifo g/fifo 2>/dev/null; ln -sfn loop g/loop; echo t > /tmp/t; echo s > /dev/shm/s; true")
    assert box.get("g/l").data == b"in\n"
    for path in ("g/out", "g/out2", "g/fifo", "g/loop", "g/none", "../etc/passwd", "/etc/passwd"):
        assert "error" in box.get(path), path
    assert box.get("t", root="tmp").data == b"t\n" and box.get("s", root="shm").data == b"s\n"
    assert "error" in box.get("x", root="etc")
    r = box.get("g")
    assert r["skipped"] == ["g/fifo"]
    with tarfile.open(fileobj=io.BytesIO(r.data)) as t:
        assert t.getmember("g/out").issym() and "g/fifo" not in t.getnames()
    assert box.get(".").events[0]["name"] == "work"


def test_get_tells_what_changed_while_it_was_read(box):
    sh(box, "mkdir -p chg; head -c 60000000 /dev/zero > chg/big; echo x > chg/calm")
    c = box.connect()
    c.head("get", path="chg", gzip=False)
    first = c.frame()
    time.sleep(0.2)
    sh(box, "truncate -s 1000 chg/big")
    r = c.result()
    assert r["changedWhileReading"] == ["chg/big"] and json.loads(first[2])["type"] == "dir"
    with tarfile.open(fileobj=io.BytesIO(r.data)) as t:
        assert t.extractfile("chg/calm").read() == b"x\n"
    c.close()


# ---------------------------------------------------------------- diff and prune

def test_diff(box):
    box.put("df", tar_of(("a", b"1"), ("dir/b", {"mode": 0o755}, b"2"), ("l", link("a")), ("extra/e\n", b"3"),
                         ("node_modules/x", b""), (".git/y", b"")))
    good = [entry("a", b"1"), entry("dir/b", b"2", executable=True), entry("l", link="a")]
    r = box.diff("df", good)
    assert r.need == [] and r["entries"] == 3 and r["exists"] and not r["isFile"]
    assert [base64.b64decode(x) for x in r["extras"]] == [b"extra/e\n"] and r["extraCount"] == 1
    bad = [entry("a", b"x"), entry("a/b", b"1"), entry("dir/b", b"2"), entry("l", link="b"), entry("l", b"1"), entry("l/x", b""),
           entry("none", b""), entry("dir", b"1"), entry("x" * 300, b"")]
    assert box.diff("df", bad).need == list(range(len(bad)))
    r = box.diff("df/none", good)
    assert r.need == [0, 1, 2] and not r["exists"]
    r = box.diff("df/a", good)
    assert r["isFile"] and r.need == [0, 1, 2]
    for broken in (b"\x07" * 50, entry("a", b"1")[:-1], entry("../x", b""), entry("/x", b""), entry("a\0b", b"")):
        assert "error" in box.op("diff", _data=broken, dest="df")


def test_diff_never_follows_links(box):
    sh(box, "rm -rf dl; mkdir dl; ln -s /etc dl/etc; ln -s /etc/passwd dl/p")
    passwd = box.exec("cat /etc/passwd").stdout
    assert box.diff("dl", [entry("etc/passwd", passwd), entry("p", passwd)]).need == [0, 1]


def test_digest_cache_sees_edits_within_one_tick(box):
    """git's racy rule: same size, same tick, and still found."""
    body = b"a" * 64
    box.put("racy", tar_of(("f", body)))
    assert box.diff("racy", [entry("f", body)]).need == []
    for i in range(60):
        new = b"%064d" % i
        sh(box, f"printf %s {new.decode()} > racy/f")
        assert box.diff("racy", [entry("f", body)]).need == [0]
        assert box.diff("racy", [entry("f", new)]).need == []
    # written by put, edited at once
    for i in range(40):
        box.put("racy", tar_of(("f", b"%064d" % i)))
        sh(box, "printf %064d 999 > racy/f")
        assert box.diff("racy", [entry("f", b"%064d" % i)]).need == [0], i


def test_damaged_digest_cache_is_harmless(box):
    box.put("dc", tar_of(("f", b"content")))
    assert box.diff("dc", [entry("f", b"content")]).need == []
    for wreck in ("head -c 1000 /dev/urandom", "head -c 96 /dev/zero", "printf PsbxDIG1", "true"):
        sh(box, f"{wreck} > /var/lib/boxd/digests")
        assert box.diff("dc", [entry("f", b"content")]).need == []
        assert box.diff("dc", [entry("f", b"CONTENT")]).need == [0]
    sh(box, "rm -rf /var/lib/boxd; ln -s /etc /var/lib/boxd; true")
    assert box.diff("dc", [entry("f", b"content")]).need == []
    sh(box, "rm -f /var/lib/boxd")


def test_prune(box):
    sh(box, "rm -rf pr; mkdir -p pr/a/b/c pr/keep; touch pr/a/b/c/f pr/keep/x pr/y; ln -s /etc pr/etc; ln -s y pr/ly")
    r = box.op("prune", _data=b"a/b/c/f\0y\0ly\0none\0etc/passwd\0../x\0keep\0", dest="pr")
    assert r["pruned"] == 3
    assert {f["path"] for f in r["failed"]} == {"etc/passwd", "../x", "keep"}
    assert sh(box, "find pr | sort") == "pr\npr/etc\npr/keep\npr/keep/x\n"
    assert "error" in box.op("prune", _data=b"x", dest="pr")


def test_ten_thousand_files(fresh):
    members = [(f"src/d{i // 20:03d}/f{i}", b"%d" % i * 50) for i in range(10000)]
    t = tar_of(*members, fmt=tarfile.GNU_FORMAT)
    plan = [entry(n, b) for n, b in members]
    t0 = time.monotonic()
    assert fresh.put("big", t)["changed"] == 10000
    t1 = time.monotonic()
    assert fresh.diff("big", plan).need == []
    t2 = time.monotonic()
    print(f"put {1000 * (t1 - t0):.0f} ms, diff {1000 * (t2 - t1):.0f} ms")
    sh(fresh, "echo changed > big/src/d000/f7")
    assert fresh.diff("big", plan).need == [7]
