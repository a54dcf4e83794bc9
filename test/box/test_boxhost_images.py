"""Images and their versions: boxes keep the one they started from, new ones get the current, and what nobody needs goes."""

import fcntl
import json
import os
import signal
import subprocess
import threading
from pathlib import Path

import pytest

from conftest import Refused, make_image, program, until


def folder(host):
    return host.state / "boxhost" / "images"


def versions(host, name):
    return {p.name for p in (folder(host) / name).glob("v-*")}


def put_version(host, name, version):
    """What a finished build does: a version whose tree says which it is, and the link to it, while it holds the lock."""
    root = make_image(host, ".made", "v/rootfs")
    (root / "version").write_text(version)
    os.chmod(root.parent, 0o700)
    with open(folder(host) / ".lock", "r+") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)
        (folder(host) / name).mkdir(exist_ok=True)
        root.parent.rename(folder(host) / name / f"v-{version}")
        fresh = folder(host) / name / "current.new"
        fresh.symlink_to(f"v-{version}")
        fresh.rename(folder(host) / name / "current")


def command(host, *words):
    """`boxhost --images …`: (exit code, what it answered)."""
    done = subprocess.run([program("boxhost"), "--images", *words, "--state", str(host.state)], capture_output=True, text=True, timeout=120,
                          check=False)
    return done.returncode, json.loads(done.stdout.splitlines()[-1]) if done.stdout else None


@pytest.fixture
def host(boxhost_factory):
    made = boxhost_factory()
    made.call("hello")
    return made


def test_a_box_keeps_its_version_and_the_last_takes_it_along(host):
    put_version(host, "work", "one")
    first, second = host.create(image="work"), host.create(image="work")
    put_version(host, "work", "two")
    third = host.create(image="work")
    assert [box.ok("cat /version") for box in (first, second, third)] == ["one", "one", "two"]
    # nothing was read of these yet: the old tree is still there, whole
    assert first.ok("ls /bin").split() == third.ok("ls /bin").split()
    listed = {image["name"]: image for image in command(host, "list")[1]}
    assert listed["work"]["boxes"] == 3 and listed["work"]["oldVersions"] == 1
    host.restart()
    assert versions(host, "work") == {"v-one", "v-two"}
    assert first.ok("cat /version") == "one"
    first.destroy()
    assert "v-one" in versions(host, "work") and second.ok("cat /version; id -u") == "one0\n"
    second.destroy()
    until(lambda: versions(host, "work") == {"v-two"})
    until(lambda: not list(folder(host).glob(".gone-*")))
    assert third.ok("cat /version") == "two"
    third.destroy()
    assert versions(host, "work") == {"v-two"}, "the current one stays without boxes"


def test_a_box_that_ended_keeps_its_version_too(host):
    put_version(host, "work", "one")
    box = host.create(image="work")
    put_version(host, "work", "two")
    os.kill(box.pid, signal.SIGKILL)
    host.event()
    host.restart()
    assert host.boxes()[box.id]["state"] == "dead" and versions(host, "work") == {"v-one", "v-two"}
    box.destroy()
    until(lambda: versions(host, "work") == {"v-two"})


def test_an_old_version_that_nobody_needs_goes_at_the_next_start(host):
    put_version(host, "work", "one")
    put_version(host, "work", "two")
    (folder(host) / "work" / "v-half").mkdir()
    for left in (".gone-abc", ".build-abc"):
        (folder(host) / left / "rootfs").mkdir(parents=True)
    host.restart()
    until(lambda: versions(host, "work") == {"v-two"})
    until(lambda: not [p for p in folder(host).iterdir() if p.name.startswith((".gone-", ".build-"))])


def test_what_is_being_built_is_left_alone(host):
    with open(folder(host) / ".build.lock", "w") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)  # first, as a build does: the sweep of the first start may still be at work
        (folder(host) / ".build-abc").mkdir()
        (folder(host) / ".gone-abc").mkdir()
        host.restart()
        until(lambda: not (folder(host) / ".gone-abc").exists())
        assert (folder(host) / ".build-abc").exists()
        code, answer = command(host, "build", "debian")
        assert code == 1 and "being built" in answer["error"]
    host.restart()
    until(lambda: not (folder(host) / ".build-abc").exists())


def test_the_default(host):
    assert host.call("images")["default"] == "host"
    put_version(host, "work", "one")
    assert command(host, "default", "work")[0] == 0
    said = host.call("images")
    assert said["default"] == "work"
    assert host.event() == {"event": "images"}, "whoever keeps boxes ready is told"
    host_row, work_row = said["images"]
    assert host_row["version"].startswith("skel-") and not host_row["default"]
    assert work_row == {"name": "work", "ready": True, "default": True, "version": "v-one"}
    box = host.create()
    assert box.ok("cat /version") == "one" and host.boxes()[box.id]["image"] == "work"
    host.restart()
    assert host.call("images")["default"] == "work"
    code, answer = command(host, "default", "nothere")
    assert code == 1 and "host, work" in answer["error"]
    for broken in ("nothere", "../../etc", "", "x" * 500):
        (folder(host) / ".default").write_text(broken)
        assert host.call("images")["default"] == "host"


def test_an_unknown_image_is_refused_with_those_that_there_are(host):
    put_version(host, "work", "one")
    for name in ("debian", ".lock", "work/v-one", "current"):
        with pytest.raises(Refused) as refused:
            host.create(image=name)
        assert refused.value.code in ("ENOENT", "EINVAL")
    with pytest.raises(Refused) as refused:
        host.create(image="debian")
    assert "host, work" in str(refused.value)
    assert host.boxes() == {} and not list((host.state / "boxhost" / "boxes").iterdir())


def test_rm(host):
    put_version(host, "work", "one")
    put_version(host, "usual", "one")
    assert command(host, "default", "usual")[0] == 0
    box = host.create(image="work")
    for name, words in (("host", "stays"), ("usual", "default"), ("work", box.id), ("nothere", "host, usual, work")):
        code, answer = command(host, "rm", name)
        assert code == 1 and words in answer["error"], (name, answer)
    put_version(host, "work", "two")
    assert box.id in command(host, "rm", "work")[1]["error"], "an old version counts as well"
    box.destroy()
    assert command(host, "rm", "work") == (0, None)
    assert not (folder(host) / "work").exists() and not list(folder(host).glob(".gone-*"))
    assert host.create(image="usual").ok("cat /version") == "one"


def test_a_damaged_record_keeps_everything(host):
    put_version(host, "work", "one")
    put_version(host, "work", "two")
    broken = host.state / "boxhost" / "boxes" / "damaged1"
    broken.mkdir()
    (broken / "spec.json").write_text("{")
    host.restart()
    box = host.create(image="work")
    box.destroy()
    assert versions(host, "work") == {"v-one", "v-two"}
    assert "cannot be read" in command(host, "rm", "work")[1]["error"]


def test_boxes_start_while_images_change(host):
    """No box ever starts from a tree that goes away, however often it is replaced."""
    put_version(host, "work", "v0")
    stop = threading.Event()
    failed = []

    def replace():
        number = 0
        while not stop.is_set():
            number += 1
            put_version(host, "work", f"v{number}")
            for words in (("list",), ("rm", "work")):
                command(host, *words)
            if not (folder(host) / "work").exists():
                failed.append("an image in use was removed") if host.boxes_held else put_version(host, "work", f"w{number}")

    host.boxes_held = []
    first = host.create(image="work")
    host.boxes_held.append(first)
    changer = threading.Thread(target=replace)
    changer.start()
    try:
        for _ in range(25):
            box = host.create(image="work")
            version = box.ok("cat /version")
            assert len(box.ok("ls /bin").split()) == 5
            assert box.ok("cat /version") == version
            box.destroy()
    finally:
        stop.set()
        changer.join()
    assert not failed
    assert first.ok("cat /version") == "v0" and len(first.ok("ls /bin; id -u >/dev/null").split()) == 5
    first.destroy()
    until(lambda: len(versions(host, "work")) == 1)


def test_cleanup_keeps_images_and_removes_what_is_old(boxhost_factory):
    host = boxhost_factory()
    put_version(host, "work", "one")
    box = host.create(image="work")
    put_version(host, "work", "two")
    assert command(host, "default", "work")[0] == 0
    assert box.ok("cat /version") == "one"
    host.cleanup()
    assert versions(host, "work") == {"v-two"} and not list(folder(host).glob(".gone-*"))
    assert (folder(host) / ".default").read_text() == "work"
    assert not Path(folder(host) / "host").exists()
