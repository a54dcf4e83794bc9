"""Boxes that fill what they can: a full box hurts only itself, and all of them together leave the server its reserve."""

import os
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import pytest
from instance import Instance, until
from mcpclient import gather

MIB = 1 << 20
RESERVE = 160 * MIB


def left(path):
    s = os.statvfs(path)
    return s.f_bavail * s.f_frsize


@pytest.fixture
def small_disk():
    """A file system of 1 GiB of its own for a server's state."""
    folder = Path(tempfile.mkdtemp(prefix="psbx-disk-", dir="/var/tmp"))
    image, place = folder / "image", folder / "mounted"
    place.mkdir()
    with open(image, "wb") as file:
        file.truncate(1 << 30)
    try:
        subprocess.run(["mkfs.ext4", "-q", "-F", "-m", "0", image], check=True)
        subprocess.run(["mount", "-o", "loop", image, place], check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        subprocess.run(["rm", "-rf", folder], check=True)
        pytest.skip(f"no file system can be mounted here: {error}")
    folder.chmod(0o755)
    yield place
    until(lambda: subprocess.run(["umount", place], stderr=subprocess.DEVNULL, check=False).returncode == 0)
    subprocess.run(["rm", "-rf", folder], check=True)


@pytest.fixture
def server(small_disk, monkeypatch):
    monkeypatch.setenv("PSBX_TEST_STATE", str(small_disk))
    instance = Instance(arguments=("--freeze-after", "never", "--archive-after", "never", "--disk-reserve", str(RESERVE)))
    remains = []
    try:
        instance.start()
        if not (instance.state / "boxhost" / "pool").is_dir() or not list((instance.state / "boxhost" / "pool").glob("d-*")):
            pytest.skip("no disks of their own here")
        yield instance
        remains = instance.finish()
    finally:
        instance.sweep()
    assert not remains, remains


class Watch:
    """The least that was ever free."""

    def __init__(self, path):
        self.path, self.least, self.on = path, left(path), True
        self.thread = threading.Thread(target=self.look, daemon=True)
        self.thread.start()

    def look(self):
        while self.on:
            self.least = min(self.least, left(self.path))
            time.sleep(0.01)

    def end(self):
        self.on = False
        self.thread.join()
        return self.least


# A box is told early that the disk is full when many share what is left; what others did not take is there a moment later.
FILL = "for n in $(seq 12); do dd if=/dev/zero of=/work/fill-$RANDOM$n bs=1M 2>&1; sync; sleep 0.4; done; df --output=avail /work | tail -1"


def test_all_boxes_together_leave_the_reserve(server, small_disk):
    client = server.client(agent="full")
    boxes = [client.start(size="small") for _ in range(3)]
    quiet = client.start(size="small")
    client.exec(quiet, "echo kept > file; sync")
    watch = Watch(small_disk)
    results = gather([lambda box=box: client.exec(box, FILL, timeoutSec=300) for box in boxes])
    for result in results:
        assert not result.is_error and "No space left" in result["stdout"], result
    # again and again, and all kinds of small things
    gather([lambda box=box: client.exec(box, "for i in $(seq 3000); do echo x > /work/small-$i || break; done; " + FILL, timeoutSec=300) for box in boxes])
    least = watch.end()
    assert least > RESERVE // 2, f"boxes got at the reserve: {least // MIB} MiB were left"
    # the server works: it answers, it records, it looks, it refuses what would need more
    step = client.exec(quiet, "cat file", note="recorded all the same")
    assert step["stdout"] == "kept\n"
    assert client.tool("sandbox_status", {"id": quiet})["steps"][-1]["note"] == "recorded all the same"
    assert server.get("/readyz")[0] == 200
    # what boxes say is kept no longer when little is left, and the rest of the disk stays
    for _ in range(3):
        loud = client.exec(quiet, "head -c 200000000 /dev/zero | tr '\\0' x")
        assert loud["exitCode"] == 0 and loud["truncated"]
    assert "outputUrl" not in loud.data or not loud["outputUrl"], loud.data
    assert left(small_disk) > RESERVE // 3
    refused = client.tool("sandbox_start", {"goal": "one more", "size": "small"})
    assert refused.is_error and "disk is nearly full" in refused.text and "MiB" in refused.text and "sandbox_stop" in refused.text, refused.text
    status, _, body = client.rest("POST", f"/v1/boxes/{quiet}/sync?dest=d", b"\0" * 1024)
    assert status == 507 and b"disk is nearly full" in body
    told = client.exec(boxes[0], "dd if=/dev/zero of=/work/more bs=1M count=900 || true; dd if=/dev/zero of=/work/more2 bs=1M count=900")
    assert told["exitCode"] != 0 and any("server's own disk" in why for why in told["denied"]), told.data
    # it survives a restart like that
    server.kill()
    server.start()
    assert client.exec(quiet, "cat file")["stdout"] == "kept\n"
    # stopping works, restoring is refused and loses nothing, deleting frees
    assert client.stop(boxes[0])["status"] == "archived"
    refused = client.tool("sandbox_start", {"goal": "back", "restore": boxes[0]})
    assert refused.is_error and "disk is nearly full" in refused.text
    assert server.archives_on_disk() == {boxes[0]}
    before = left(small_disk)
    assert client.stop(boxes[0])["status"] == "deleted"
    until(lambda: left(small_disk) > before + 100 * MIB)
    fresh = client.start(size="small")
    assert client.exec(fresh, "dd if=/dev/zero of=/work/f bs=1M count=20 2>/dev/null && sync && echo written")["stdout"] == "written\n"
    # files that a full box deletes are room for all
    before = left(small_disk)
    client.exec(boxes[1], "rm -f /work/fill-*; sync; sleep 1; sync")
    until(lambda: left(small_disk) > before + 50 * MIB)
    # what boxes were told is written can be read: no block was promised twice
    sums = client.exec(boxes[2], "cd /work && find . -name 'fill-*' -size +0 -exec cat {} + | tr -d '\\0' | wc -c; dmesg 2>/dev/null | grep -c 'I/O error' || true")
    assert sums["stdout"].split()[0] == "0"


def test_an_archive_of_a_full_box_comes_back_whole(server, small_disk):
    client = server.client()
    box = client.start(size="small")
    done = client.exec(box, "cd /work; seq 1 4000000 > numbers; md5sum numbers > sum; dd if=/dev/zero of=fill bs=1M 2>/dev/null; df --output=avail . | tail -1", timeoutSec=300)
    assert not done.is_error
    assert client.stop(box)["status"] == "archived"
    until(lambda: client.tool("sandbox_start", {"goal": "g", "restore": box}).is_error)  # below the reserve
    other = server.state / "boxhost" / "archive" / box / "disk.img"
    assert other.exists()
    server.stop()
    server.arguments[server.arguments.index("--disk-reserve") + 1] = "16M"
    server.start()
    assert not client.tool("sandbox_start", {"goal": "g", "restore": box}).is_error
    assert client.exec(box, "cd /work; md5sum -c sum; rm fill")["stdout"] == "numbers: OK\n"


@pytest.mark.parametrize("path", ["/", "/work", "/tmp", "/var", "/home", "/etc", "/usr/local", "/run", "/run/lock", "/dev/shm"])
def test_every_writable_path_has_an_end(server, small_disk, path):
    """A box fills one path; the machine's disk and memory, and the other box, do not notice."""
    client = server.client()
    box, other = client.start(size="small"), client.start(size="small")
    watch = Watch(small_disk)
    result = client.exec(box, f"dd if=/dev/zero of={path}/fill bs=1M count=6000 2>&1; echo code $?; ls -s {path}/fill", timeoutSec=300)
    assert not result.is_error
    assert "No space left" in result["stdout"] or result["oomKilled"] or "Killed" in result["stdout"] + result["stderr"], result
    assert watch.end() > RESERVE // 2
    used = client.tool("sandbox_status", {"id": box})["resources"]
    assert used["memory"]["used"] <= used["memory"]["limit"] and used["disk"]["used"] <= used["disk"]["limit"]
    assert client.exec(other, "mount | wc -l >/dev/null; echo well; awk '/^MemAvailable/{print ($2 > 200000)}' /proc/meminfo")["stdout"].split() == ["well", "1"]
    assert client.exec(box, f"rm -f {path}/fill; echo again > {path}/fill && cat {path}/fill")["stdout"] == "again\n", "and the box recovers"


def test_nothing_else_is_writable(server):
    client = server.client()
    box = client.start(size="small")
    found = client.exec(box, "awk '$4 ~ /^rw/ {print $2}' /proc/mounts")["stdout"].split()
    disk_or_memory = {"/", "/usr", "/work", "/dev/shm", "/run"}
    assert set(found) <= disk_or_memory | {"/proc", "/dev/pts", "/dev/mqueue", "/dev"}, found
    for path in ("/proc", "/dev/pts", "/dev/mqueue", "/dev"):
        assert client.exec(box, f"dd if=/dev/zero of={path}/fill bs=1M count=64")["exitCode"] != 0 or path == "/dev/mqueue"
