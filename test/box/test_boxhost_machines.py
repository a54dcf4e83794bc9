"""Machines that have less: other cgroup layouts, no loop devices, no packet filter. Each is played by a mount namespace in which
boxhost finds things hidden; the machine itself stays as it is."""

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from conftest import GIB, until

MIB = 1 << 20


def prefix(script):
    return ["unshare", "-m", "sh", "-c", f'set -e\n{script}\nexec "$@"', "sh"]


def works(argv):
    run = subprocess.run([*argv, "true"], capture_output=True, text=True)
    return run.returncode == 0


def check_life(host):
    box = host.create(size={"cpus": 1, "memoryBytes": 128 * MIB, "pids": 40, "diskBytes": GIB})
    assert {line.split(":")[2] for line in box.ok("cat /proc/self/cgroup").split()} == {"/"}
    box.ok("for i in 1 2 3 4 5; do sleep 1000 >/dev/null 2>&1 & done; setsid sleep 1000 >/dev/null 2>&1 &")
    pids = set(subprocess.run(["pgrep", "-P", str(box.pid)], capture_output=True, text=True).stdout.split())
    assert pids
    host.restart()
    assert host.boxes()[box.id]["state"] == "running"
    box.destroy()
    assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)
    assert not [p for p in Path("/sys/fs/cgroup").glob(f"**/psbx-{host.instance}/*") if p.is_dir()]


def test_only_v1(boxhost_factory):
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    v2 = [m[1] for m in mounts if m[2] == "cgroup2"]
    if not any(m[2] == "cgroup" and "pids" in m[3].split(",") for m in mounts):
        pytest.skip("no cgroup v1 on this machine")
    host = boxhost_factory(prefix=prefix("\n".join(f"umount {path}" for path in v2)))
    cgroup = host.call("hello")["features"]["cgroup"]
    assert cgroup["layout"] == "v1" and cgroup["pids"] and not cgroup["kill"]
    check_life(host)
    box = host.create(size={"cpus": 1, "memoryBytes": 128 * MIB, "pids": 40, "diskBytes": GIB})
    assert box.sh("python3 -c 'b=[bytearray(20<<20) for _ in range(50)]'")[1] == 137
    if cgroup["freeze"]:
        box.ok("(while :; do :; done) >/dev/null 2>&1 &")
        host.call("freeze", box=box.id)
        before = box.stats()["cpuUsec"]
        subprocess.run(["sleep", "0.3"])
        assert box.stats()["cpuUsec"] - before < 20000
        box.destroy()  # also frozen


def test_only_v2(boxhost_factory):
    """The kernel gives v2 what v1 does not hold; what is left over is missed and told."""
    wanted = prefix("umount -R /sys/fs/cgroup\nmount -t cgroup2 cgroup2 /sys/fs/cgroup")
    if not works(wanted):
        pytest.skip("/sys/fs/cgroup cannot be replaced here")
    host = boxhost_factory(prefix=wanted)
    hello = host.call("hello")
    cgroup = hello["features"]["cgroup"]
    assert cgroup["layout"] == "v2" and cgroup["kill"] and cgroup["freeze"]
    missed = {m["what"] for m in hello["missing"]}
    for name in ("cpu", "memory", "pids"):
        assert cgroup[name] != (f"cgroup {name}" in missed)
    box = host.create(size={"cpus": 1, "memoryBytes": 128 * MIB, "pids": 40, "diskBytes": GIB})
    assert {line.split(":")[2] for line in box.ok("cat /proc/self/cgroup").split() if line.startswith("0:")} == {"/"}
    if cgroup["pids"]:
        assert box.stats()["pids"]["limit"] == 40
    box.ok("setsid sleep 1000 >/dev/null 2>&1 &")
    host.call("freeze", box=box.id)
    host.restart()
    assert host.boxes()[box.id]["state"] == "frozen"
    box.destroy()


def test_a_delegated_v2_subtree_is_used(boxhost_factory):
    """As a service manager does it: our processes sit in a cgroup that is marked as ours."""
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    v2 = next((m[1] for m in mounts if m[2] == "cgroup2"), None)
    if not v2:
        pytest.skip("no cgroup v2 on this machine")
    own = Path(v2) / f"psbt-{os.getpid()}"
    own.mkdir()
    try:
        try:
            os.setxattr(own, "trusted.delegate", b"1")
        except OSError as e:
            pytest.skip(f"cgroups take no attributes here: {e}")
        join = ["sh", "-c", f'echo $$ > {own}/cgroup.procs && exec "$@"', "sh"]
        host = boxhost_factory(prefix=join)
        box = host.create()
        assert (own / f"psbx-{host.instance}" / box.id).is_dir()
        assert not (Path(v2) / f"psbx-{host.instance}").exists()
        assert str(box.pid) in (own / f"psbx-{host.instance}" / box.id / "cgroup.procs").read_text().split()
        host.cleanup()
        assert not (own / f"psbx-{host.instance}").exists()
        host.prefix = []  # the cgroup goes before the last cleanup
    finally:
        for leaf in [*own.glob("*/"), own]:
            subprocess.run(["rmdir", str(leaf)], check=False, stderr=subprocess.DEVNULL)


def test_without_mkfs_there_is_no_disk_limit(boxhost_factory):
    path = shutil.which("mkfs.ext4", path="/usr/sbin:/sbin:/usr/bin:/bin")
    if not path:
        pytest.skip("mkfs.ext4 is not installed, so this is the normal case here")
    host = boxhost_factory(prefix=prefix(f"mount --bind /dev/null {os.path.realpath(path)}"))
    hello = host.call("hello")
    assert not hello["features"]["disk"]
    assert [m for m in hello["missing"] if m["what"] == "disk limit" and "no disk limit" in m["cost"] and m["why"]]
    check_life(host)
    box = host.create()
    # What a box leaves behind must never lead the removal out of its folder.
    victim = host.state / "victim"
    victim.mkdir()
    (victim / "file").write_text("x")
    box.ok(f"ln -s {victim} /work/link; ln -s / /work/root; mkdir -p /work/a/b/c; chmod 000 /work/a; ln -s ../../.. /up")
    box.destroy()
    assert (victim / "file").read_text() == "x" and os.path.exists("/usr")
    assert list((host.state / "boxhost" / "boxes").iterdir()) == []


def test_without_nft_there_is_no_network(boxhost_factory):
    path = shutil.which("nft", path="/usr/sbin:/sbin:/usr/bin:/bin")
    if not path:
        pytest.skip("nft is not installed, so this is the normal case here")
    host = boxhost_factory(prefix=prefix(f"mount --bind /dev/null {os.path.realpath(path)}"))
    hello = host.call("hello")
    assert not hello["features"]["net"]
    assert [m for m in hello["missing"] if m["what"] == "network"]
    box, other = host.create(), host.create()
    assert "address" not in box.answer and box.index != other.index
    assert box.ok("ls /sys/class/net 2>/dev/null; cat /proc/net/dev | grep -c :").strip() == "1"
    assert box.ok("python3 -c \"import socket; s=socket.socket(); s.bind(('127.0.0.1', 0)); s.listen(); "
                  "socket.create_connection(s.getsockname()); print('loop')\"").strip() == "loop"


def test_a_small_file_limit_is_lived_with(boxhost_factory):
    host = boxhost_factory(prefix=["sh", "-c", 'ulimit -n 1024; exec "$@"', "sh"])
    assert int(host.create().ok("ulimit -Hn")) == 1024


def test_started_with_a_dirty_environment(boxhost_factory):
    host = boxhost_factory(prefix=["env", "SECRET_TOKEN=psbx-secret-1", "sh", "-c",
                                   'exec 9>/dev/null; umask 0777; trap "" TERM HUP PIPE; exec "$@"', "sh"])
    box = host.create()
    assert "psbx-secret" not in box.ok("cat /proc/1/environ /proc/self/environ | tr '\\0' '\\n'")
    assert box.ok("umask").strip() == "0022"
    status = dict(line.split(":\t", 1) for line in box.ok("cat /proc/1/status").splitlines() if ":\t" in line)
    assert int(status["SigBlk"], 16) == 0 and int(status["SigIgn"], 16) & (1 << (signal.SIGTERM - 1)) == 0
    assert until(lambda: box.ok("ls /work /tmp && echo fine")).strip().endswith("fine")
