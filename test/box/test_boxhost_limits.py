"""Limits of a box, proven by what happens when they are reached."""

import time

import pytest

from conftest import GIB, until

MIB = 1 << 20


def need(boxhost, *controllers):
    cgroup = boxhost.call("hello")["features"]["cgroup"]
    for name in controllers:
        if not cgroup[name]:
            pytest.skip(f"this machine has no cgroup controller for {name}")


def test_memory_ends_the_greedy_process_only(boxhost):
    need(boxhost, "memory")
    box = boxhost.create(size={"memoryBytes": 128 * MIB, "pids": 64, "diskBytes": GIB, "cpus": 1})
    _, code = box.sh("python3 -c 'b=[bytearray(20<<20) for _ in range(50)]'")
    assert code == 137
    assert box.ok("echo alive").strip() == "alive"
    assert box.stats()["oomKills"] >= 1
    assert boxhost.boxes()[box.id]["state"] == "running"


def test_shared_memory_counts(boxhost):
    need(boxhost, "memory")
    box = boxhost.create(size={"memoryBytes": 128 * MIB, "pids": 64, "diskBytes": GIB, "cpus": 1})
    box.ok("head -c 50M /dev/zero > /dev/shm/x")
    assert box.stats()["memory"]["used"] > 50 * MIB
    box.ok("rm /dev/shm/x")
    assert box.stats()["memory"]["used"] < 50 * MIB


BOMB = """
import os, sys, time
n = 0
try:
    while True:
        if os.fork() == 0:
            os.closerange(0, 64)
            time.sleep(60)
            os._exit(0)
        n += 1
except OSError as e:
    print(n, e.errno)
"""


def test_processes(boxhost):
    need(boxhost, "pids")
    box = boxhost.create(size={"memoryBytes": 512 * MIB, "pids": 40, "diskBytes": GIB, "cpus": 1})
    count, error = box.python(BOMB).split()[-2:]
    assert 20 <= int(count) < 40 and error == "11"
    assert box.stats()["pids"]["limit"] == 40
    other = boxhost.create()
    other.ok("true")
    box.destroy()  # a box full of processes ends at once


def test_cpu(boxhost):
    need(boxhost, "cpu")
    box = boxhost.create(size={"cpus": 0.5, "memoryBytes": 256 * MIB, "pids": 64, "diskBytes": GIB})
    box.ok("for i in 1 2 3; do (while :; do :; done) >/dev/null 2>&1 & done")
    first, begin = box.stats()["cpuUsec"], time.monotonic()
    time.sleep(2)
    used, wall = (box.stats()["cpuUsec"] - first) / 1e6, time.monotonic() - begin
    assert used / wall < 0.65


def test_a_full_disk_hurts_only_its_owner(boxhost):
    if not boxhost.call("hello")["features"]["disk"]:
        pytest.skip("no disk limit on this machine")
    box = boxhost.create(size={"cpus": 1, "memoryBytes": 512 * MIB, "pids": 64, "diskBytes": 128 * MIB})
    other = boxhost.create(size={"cpus": 1, "memoryBytes": 512 * MIB, "pids": 64, "diskBytes": 128 * MIB})
    assert "No space left" in box.sh("head -c 300M /dev/zero 2>&1 > /work/full; sync")[0]
    assert box.stats()["disk"]["used"] > 100 * MIB
    other.ok("head -c 20M /dev/zero > /work/x && sync")
    box.ok("rm /work/full && head -c 20M /dev/zero > /usr/y && head -c 20M /dev/zero > /tmp/z")
    assert 40 * MIB < box.stats()["disk"]["used"] < 60 * MIB


def test_deleted_bytes_go_back_to_the_machine(boxhost):
    if not boxhost.call("hello")["features"]["disk"]:
        pytest.skip("no disk limit on this machine")
    box = boxhost.create()
    image = boxhost.state / "boxhost" / "boxes" / box.id / "disk.img"
    box.ok("head -c 200M /dev/urandom > /work/x && sync")
    until(lambda: image.stat().st_blocks * 512 > 150 * MIB)
    box.ok("rm /work/x && sync")
    until(lambda: image.stat().st_blocks * 512 < 50 * MIB)


def test_open_files_have_a_limit_and_core_files_are_off(boxhost):
    box = boxhost.create()
    soft = int(box.ok("ulimit -Sn"))
    assert 1024 <= soft <= 65536
    assert box.ok("ulimit -c").strip() == "0"
