"""Boxes that are put away and brought back: the disk moves in one step, whoever is killed when."""

import itertools
import json
import os
import random
import subprocess
import time
from pathlib import Path

import pytest

from conftest import GIB, Box, Refused, loops, until

SMALL = {"cpus": 1, "memoryBytes": 64 << 20, "pids": 32, "diskBytes": GIB}


def archives(host):
    found, after = {}, ""
    while True:
        page = host.call("archives", after=after)
        found.update({a["box"]: a["bytes"] for a in page["archives"]})
        if "next" not in page:
            return found
        after = page["next"]


def restore(host, name, **fields):
    """As the server asks: a disk that a killed boxhost left mounted is free in a moment."""
    def once():
        try:
            return host.call("restore", box=name, **fields)
        except Refused as refused:
            if refused.code != "EBUSY":
                raise
            return None

    return Box(host, name, until(once))


def spec_of(host, name):
    return host.state / "boxhost" / "archive" / name / "spec.json"


def test_a_box_comes_back_as_it_was(boxhost):
    box = boxhost.create()
    box.ok("mkdir /work/dir && echo kept > /work/dir/file && chown 7:8 /work/dir/file && ln -s dir/file /work/link && "
           "echo more > /opt/more && rm /etc/hostname && mkdir /usr/local/mine && (sleep 900 & ) >/dev/null 2>&1")
    boxhost.call("archive", box=box.id)
    assert box.id in archives(boxhost) and box.id not in boxhost.boxes()
    assert not Path(f"/proc/{box.pid}").exists() and not Path(f"/sys/class/net/psb{box.index}").exists()
    assert not loops(boxhost.state / "boxhost" / "archive"), "the disk is free when the answer comes"
    boxhost.call("archive", box=box.id)  # once more is the same
    back = restore(boxhost, box.id)
    assert archives(boxhost) == {} and boxhost.boxes()[box.id]["state"] == "running"
    assert back.answer["renewed"] is False
    assert back.ok("cat /work/link /opt/more; stat -c %u:%g /work/dir/file; ls -d /usr/local/mine; pgrep -x sleep || echo none").split() == \
        ["kept", "more", "7:8", "/usr/local/mine", "none"]
    back.ok("echo changed > /work/link; rm /opt/more")
    boxhost.call("archive", box=box.id)
    assert restore(boxhost, box.id).ok("cat /work/dir/file; ls /opt").split() == ["changed"]


def test_with_another_address_the_owners_stay(boxhost):
    box = boxhost.create()
    box.ok("echo a > /work/a; chown 1000:1001 /work/a; mkdir /work/d; echo t > /tmp/t")
    boxhost.call("archive", box=box.id)
    subprocess.run(["ip", "link", "add", f"psb{box.index}", "type", "veth", "peer", "name", f"psbt{box.index}"], check=True)
    try:
        back = restore(boxhost, box.id)
    finally:
        subprocess.run(["ip", "link", "del", f"psb{box.index}"], check=True)
    assert back.index != box.index
    assert back.ok("stat -c %u:%g /work/a /work/d /tmp/t").split() == ["1000:1001", "0:0", "0:0"]
    back.ok("echo b > /work/b; chown 5:6 /work/b; rm -r /work/d; mv /work/a /work/c; echo x >> /work/c; rm -f /etc/passwd; "
            "mkdir -p /usr/share/psbx && rm -rf /usr/share/misc; find /work -newer /etc/hosts >/dev/null")
    boxhost.call("archive", box=box.id)
    again = restore(boxhost, box.id)
    assert again.ok("cd /work; stat -c %n:%u:%g *; cat c; ls /etc/passwd 2>/dev/null; ls -d /usr/share/misc /usr/share/psbx 2>/dev/null; true").split() == \
        ["b:5:6", "c:1000:1001", "a", "x", "/usr/share/psbx"]


def test_over_another_image_only_work_comes_back(boxhost):
    box = boxhost.create()
    box.ok("mkdir -p /work/deep/er; echo kept > /work/deep/er/file; chown 3:4 /work/deep/er/file; echo gone > /opt/gone; rm /etc/passwd")
    for _ in range(2):
        boxhost.call("archive", box=box.id)
        record = json.loads(spec_of(boxhost, box.id).read_text())
        record["lower"] = "made of other files"
        spec_of(boxhost, box.id).write_text(json.dumps(record))
        back = restore(boxhost, box.id)
        assert back.answer["renewed"] is True
        assert back.ok("cat /work/deep/er/file; stat -c %u:%g /work/deep/er/file; ls /opt; ls /etc/passwd").split() == ["kept", "3:4", "/etc/passwd"]
        back.ok("echo again > /opt/gone")
    boxhost.call("archive", box=box.id)
    assert restore(boxhost, box.id).answer["renewed"] is False


def test_frozen_and_dead_ones_too(boxhost):
    frozen, dead = boxhost.create(), boxhost.create()
    for box in (frozen, dead):
        box.ok("echo kept > /work/file")
    boxhost.call("freeze", box=frozen.id)
    os.kill(dead.pid, 9)
    assert boxhost.event()["box"] == dead.id
    for box in (frozen, dead):
        boxhost.call("archive", box=box.id)
        assert restore(boxhost, box.id).ok("cat /work/file") == "kept\n"
    assert {b["state"] for b in boxhost.boxes().values()} == {"running"}


def test_bad_requests(boxhost):
    box = boxhost.create()
    for op, code, fields in (("restore", "EEXIST", {"box": box.id}), ("restore", "ENOENT", {"box": "nobody0"}), ("archive", "ENOENT", {"box": "nobody0"}),
                             ("restore", "EINVAL", {"box": "../x"}), ("archive", "EINVAL", {}), ("archive", "EINVAL", {"box": 5})):
        with pytest.raises(Refused) as refused:
            boxhost.call(op, **fields)
        assert refused.value.code == code, (op, fields)
    boxhost.call("archive", box=box.id)
    for op, code, fields in (("create", "EEXIST", {}), ("freeze", "ENOENT", {}), ("stats", "ENOENT", {}), ("restore", "ENOENT", {"image": "no-such"}),
                             ("restore", "EINVAL", {"image": "../.."})):
        with pytest.raises(Refused) as refused:
            boxhost.call(op, box=box.id, **fields)
        assert refused.value.code == code, (op, fields)
    assert list(archives(boxhost)) == [box.id], "and it is as it was"
    boxhost.call("destroy", box=box.id)
    assert archives(boxhost) == {} and not spec_of(boxhost, box.id).parent.exists()
    boxhost.call("destroy", box=box.id)
    boxhost.create(box.id)


def test_many_archives_come_in_pages(boxhost):
    folder = boxhost.state / "boxhost" / "archive"
    names = sorted(f"page{n:05d}" for n in range(1203))
    for name in names:
        (folder / name).mkdir()
        (folder / name / "spec.json").write_text("{}")
    try:
        assert list(archives(boxhost)) == names
    finally:
        for name in names:
            boxhost.call("destroy", box=name)
    assert archives(boxhost) == {}


def test_cleanup_takes_archives_too(boxhost_factory):
    host = boxhost_factory()
    box = host.create()
    host.call("archive", box=box.id)
    host.cleanup()
    assert not (host.state / "boxhost" / "archive").exists()
    until(lambda: host.traces() == [])


def test_what_a_broken_deletion_left_goes(boxhost_factory):
    host = boxhost_factory()
    box = host.create()
    host.call("archive", box=box.id)
    host.kill()
    spec_of(host, box.id).unlink()
    host.start()
    assert archives(host) == {}
    assert not spec_of(host, box.id).parent.exists()


def test_a_disk_is_never_mounted_twice(boxhost_factory):
    """The lock of a mounted disk lives in the kernel: a second mount is refused whatever the folders say."""
    host = boxhost_factory()
    box = host.create()
    if not host.call("hello")["features"]["disk"]:
        pytest.skip("no disks of their own here")
    folder = host.state / "boxhost" / "boxes" / box.id
    host.kill()
    os.link(folder / "disk.img", host.state / "held")
    (host.state / "boxhost" / "archive" / "twin0").mkdir()
    os.link(folder / "disk.img", host.state / "boxhost" / "archive" / "twin0" / "disk.img")
    (host.state / "boxhost" / "archive" / "twin0" / "spec.json").write_text((folder / "spec.json").read_text())
    host.start()
    with pytest.raises(Refused) as refused:
        host.call("restore", box="twin0")
    assert refused.value.code == "EBUSY"
    assert "twin0" in archives(host)
    assert host.boxes()[box.id]["state"] == "running"
    host.call("destroy", box="twin0")


def test_killed_at_a_hundred_random_points(boxhost_factory):
    """At each point the box is among the boxes or in the archive, never both and never neither, with its files."""
    host = boxhost_factory()
    box = host.create("traveller", size=SMALL)
    box.ok("seq 50000 > /work/numbers; md5sum /work/numbers > /work/sum; chown 9:9 /work/sum; sync")
    seed = random.randrange(1 << 30)
    print("seed", seed)
    rng = random.Random(seed)
    steps = itertools.cycle(["archive", "restore", "freeze", "archive", "restore"])
    seen = {"boxes": 0, "archive": 0, "dead": 0}
    for number in range(100):
        host.send(next(steps), box="traveller")
        time.sleep(rng.uniform(0, 0.05))
        if rng.random() < 0.2 and "traveller" in {p.name for p in (host.state / "boxhost" / "boxes").iterdir()}:
            try:
                os.kill(json.loads((host.state / "boxhost" / "boxes" / "traveller" / "spec.json").read_text())["pid"], 9)
            except OSError:
                pass
        host.kill()
        host.start()
        listed, kept = host.boxes(), archives(host)
        assert (set(listed) | set(kept)) == {"traveller"} and not (set(listed) & set(kept)), f"round {number}: {listed} {kept}"
        state = listed["traveller"]["state"] if listed else "archive"
        seen["boxes" if state in ("running", "frozen") else state] += 1
        if state == "frozen":
            host.call("thaw", box="traveller")
        if state == "dead" or (kept and rng.random() < 0.5):
            host.call("archive", box="traveller")
            state, listed = "running", {"traveller": restore(host, "traveller").answer}
        if listed:
            found = Box(host, "traveller", host.boxes()["traveller"])
            assert found.ok("cd /work && md5sum -c sum && stat -c %u sum && echo $((1 + $(cat rounds 2>/dev/null || echo 0))) > rounds").split()[-1] == "9"
    print(seen)
    assert seen["boxes"] > 5 and seen["archive"] > 5
    host.call("archive", box="traveller")
    host.call("destroy", box="traveller")
    host.cleanup()
    until(lambda: host.traces() == [])
