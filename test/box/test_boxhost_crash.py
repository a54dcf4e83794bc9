"""boxhost killed at any moment loses no box and leaves no orphan; two instances never meet."""

import os
import random
import signal
import time
from pathlib import Path

import pytest

from conftest import GIB, Refused, loops, until

SMALL = {"cpus": 1, "memoryBytes": 64 << 20, "pids": 32, "diskBytes": GIB}


def cgroup_names(host):
    return {p.name for p in Path("/sys/fs/cgroup").glob(f"**/psbx-{host.instance}/*") if p.is_dir()}


def processes_of(host):
    """Pids of all processes in the instance's cgroups."""
    found = set()
    for procs in Path("/sys/fs/cgroup").glob(f"**/psbx-{host.instance}/**/cgroup.procs"):
        found |= set(procs.read_text().split())
    return found


def check_consistent(host):
    """What boxhost lists, what runs, and what lies on the disk are the same boxes."""
    listed = host.boxes()
    folders = {p.name for p in (host.state / "boxhost" / "boxes").iterdir()}
    sockets = {p.name.removesuffix(".sock") for p in (host.state / "run").iterdir()}
    assert set(listed) == folders == sockets == cgroup_names(host)
    assert all(b["state"] == "running" for b in listed.values())
    assert {str(b["pid"]) for b in listed.values()} <= processes_of(host)
    links = {p.name for p in Path("/sys/class/net").iterdir()}
    assert {f"psb{b['index']}" for b in listed.values()} <= links
    return listed


def test_boxes_outlive_boxhost(boxhost_factory):
    host = boxhost_factory()
    box = host.create()
    box.ok("(sleep 1000 & echo $! > /work/pid) >/dev/null 2>&1; echo kept > /work/file")
    before = host.boxes()[box.id]
    host.restart()
    after = host.boxes()[box.id]
    assert after == before
    assert box.ok("kill -0 $(cat /work/pid) && cat /work/file").strip() == "kept"
    host.call("freeze", box=box.id)
    host.restart()
    assert host.boxes()[box.id]["state"] == "frozen"
    host.call("thaw", box=box.id)
    assert box.stats()["disk"]["limit"] > 0
    os.kill(box.pid, signal.SIGKILL)
    assert host.event()["box"] == box.id
    box.destroy()
    check_consistent(host)


def test_a_box_that_ended_meanwhile_is_dead_and_keeps_its_disk(boxhost_factory):
    host = boxhost_factory()
    box = host.create()
    host.kill()
    os.kill(box.pid, signal.SIGKILL)
    host.start()
    assert host.boxes()[box.id]["state"] == "dead"
    folder = host.state / "boxhost" / "boxes" / box.id
    assert (folder / "disk.img").exists() or (folder / "root").exists()
    with pytest.raises(Refused) as refused:
        host.call("freeze", box=box.id)
    assert refused.value.code == "ESRCH"
    box.destroy()
    assert not folder.exists()
    host.create(box.id)


def test_killed_at_random_moments(boxhost_factory):
    host = boxhost_factory()
    keep = host.create("keeper")
    keep.ok("echo there > /work/file")
    seed = random.randrange(1 << 30)
    print("seed", seed)
    rng = random.Random(seed)
    known = {"keeper"}
    for round_number in range(36):
        name = f"r{round_number:04d}"
        host.send("create", box=name, size=SMALL)
        if round_number % 3 == 2 and len(known) > 1:
            host.send("destroy", box=sorted(known - {"keeper"})[0])
        time.sleep(rng.uniform(0, 0.04))
        host.kill()
        host.start()
        listed = check_consistent(host)
        assert "keeper" in listed
        for other in sorted(set(listed) - {"keeper"}):  # what exists works, what does not can be made
            assert host.call("stats", box=other)["pids"]["used"] >= 1
        if name in listed:
            host.call("destroy", box=name)
        again = host.create(name, size=SMALL)
        assert again.ok("echo works").strip() == "works"
        known = set(host.boxes())
        if len(known) > 4:
            for other in sorted(known - {"keeper"}):
                host.call("destroy", box=other)
            known = {"keeper"}
    assert keep.ok("cat /work/file").strip() == "there"
    host.cleanup()
    until(lambda: host.traces() == [])
    assert processes_of(host) == set()


def test_answered_means_kept(boxhost_factory):
    host = boxhost_factory()
    for n in range(10):
        box = host.create(f"k{n:04d}", size=SMALL)
        host.kill()
        host.start()
        assert host.boxes()[box.id]["state"] == "running"
        assert box.ok("echo x").strip() == "x"


def test_two_instances_side_by_side(boxhost_factory):
    one, two = boxhost_factory(), boxhost_factory()
    assert one.call("hello")["instance"] != two.call("hello")["instance"]
    a = [one.create(f"same{n}", size=SMALL) for n in range(4)]
    b = [two.create(f"same{n}", size=SMALL) for n in range(4)]
    assert len({x.index for x in a + b}) == 8
    one.restart()
    assert set(two.boxes()) == set(one.boxes()) == {f"same{n}" for n in range(4)}
    one.cleanup()
    until(lambda: one.traces() == [])
    assert all(x.ok("echo on").strip() == "on" for x in b)
    assert all(v["state"] == "running" for v in two.boxes().values())
    two.restart()
    check_consistent(two)


def test_leftover_pool_files_go(boxhost_factory):
    host = boxhost_factory()
    host.create()
    pool = host.state / "boxhost" / "pool"
    host.kill()
    (pool / "d-leftover").write_bytes(b"x")
    host.start()
    host.call("hello")
    assert not (pool / "d-leftover").exists()
    until(lambda: all(Path(path.removesuffix(" (deleted)")).exists() for path in loops(host.state)))
