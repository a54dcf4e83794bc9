"""A box with 1 GiB in /work that is put away and brought back: sandbox_stop and sandbox_start {restore}, through MCP.

Against what the file system allows for keeping and bringing back the same bytes: `cp --reflink=auto` of a file of that
size there and back, and `tar | zstd` into a file and out of it. The cheaper of the two is what counts."""

import os
import shutil
import subprocess
import time

from benchlib import Row, median, note

TITLE = "archive and restore a box with 1 GiB in /work"
GIB = 1 << 30


def timed(function):
    begin = time.monotonic()
    function()
    return (time.monotonic() - begin) * 1000


def shell(command, folder):
    subprocess.run(["sh", "-ec", command], cwd=folder, check=True)


def run(bench):
    rounds = bench.rounds(5, 2)
    size = GIB if rounds > 2 else GIB // 4
    instance = bench.server()
    client = instance.client()
    box = client.start(goal="measure archiving", size="small")
    # Half of it compresses, as source trees and their dependencies do.
    fill = (f"mkdir -p w/a && cd w && head -c {size // 2} /dev/urandom > random && head -c {size // 2} /dev/zero | tr '\\0' 'text of a file' > text && "
            "for i in $(seq 500); do echo $i > a/$i; done")
    assert client.exec(box, fill + "; sync", timeoutSec=600)["exitCode"] == 0
    floor = bench.scratch / "archive"
    floor.mkdir()
    shell(fill, floor)
    times = {"stop": [], "restore": [], "cp": [], "tar": []}
    for number in range(rounds):
        # Both sides keep what was just written: the box in its file system, the other in the machine's.
        touch = f"head -c {32 << 20} /dev/urandom > new-{number}"
        client.exec(box, f"cd w && {touch}")
        shell(f"cd w && {touch}", floor)

        def stop():
            assert client.stop(box)["status"] == "archived"

        def restore():
            result = client.tool("sandbox_start", {"goal": "back", "restore": box})
            assert not result.is_error, result.text
            assert client.exec(box, "ls /work/w/random")["exitCode"] == 0

        times["stop"].append(timed(stop))
        times["restore"].append(timed(restore))
        times["cp"].append(timed(lambda: shell("cp -a --reflink=auto w kept && rm -rf w && cp -a --reflink=auto kept w && rm -rf kept", floor)))
        if shutil.which("zstd"):
            times["tar"].append(timed(lambda: shell("tar -c w | zstd -q -1 -T0 > kept.tar.zst && rm -rf w && zstd -dq < kept.tar.zst | tar -x && rm kept.tar.zst", floor)))
    client.stop(box)
    client.stop(box)
    ours = median(times["stop"]) + median(times["restore"])
    peers = {"cp --reflink=auto": median(times["cp"]), **({"tar | zstd -1": median(times["tar"])} if times["tar"] else {})}
    note(f"archive {median(times['stop']):.0f} ms, restore and look {median(times['restore']):.0f} ms, {size >> 20} MiB, {rounds} rounds, "
         f"{os.cpu_count()} cores")
    against = min(peers, key=peers.get)
    for name, other in peers.items():
        yield Row("archive + restore", ours, name, other, ours / other, at_most=1.3 if name == against else None)
