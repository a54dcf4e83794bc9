"""boxhost, driven over its request socket: making, using and ending boxes, and what a box is like inside."""

import json
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from conftest import GIB, Refused, loops, make_image, until

MIB = 1 << 20


def test_hello_tells_what_the_machine_can(boxhost):
    hello = boxhost.call("hello")
    assert re.fullmatch("[a-z0-9]{8}", hello["instance"])
    assert hello["features"]["idmap"] and hello["features"]["seccomp"]
    assert set(hello["features"]["cgroup"]) == {"layout", "cpu", "memory", "pids", "freeze", "kill"}
    for lack in hello["missing"]:
        assert lack["what"] and lack["cost"]


def test_create_use_destroy(boxhost):
    box = boxhost.create(hostname="worker", env={"GREETING": "hello there"})
    assert box.ok("id -u; hostname; echo $GREETING; pwd") .split("\n")[:3] == ["0", "worker", "hello there"]
    assert box.sh("exit 7")[1] == 7
    assert set(box.answer["timings"]) >= {"disk", "net", "mounts", "total"}
    listed = boxhost.boxes()[box.id]
    assert listed["state"] == "running" and listed["pid"] == box.pid and listed["socket"] == box.socket
    stats = box.stats()
    assert stats["cpuUsec"] > 0 and 0 < stats["memory"]["used"] < stats["memory"]["limit"] == 512 * MIB
    assert stats["disk"]["limit"] > 900 * MIB
    until(lambda: box.stats()["pids"] == {"used": 1, "limit": 128})  # what was run takes a moment to be gone
    box.destroy()
    assert boxhost.boxes() == {} and not os.path.exists(box.socket)
    again = boxhost.create(box.id)
    assert again.ok("echo fresh").strip() == "fresh"


def test_destroy_is_idempotent(boxhost):
    boxhost.call("destroy", box="never1")
    box = boxhost.create()
    box.destroy()
    box.destroy()


@pytest.mark.parametrize("fields, code", [
    ({"box": "../../etc"}, "EINVAL"), ({"box": "ab"}, "EINVAL"), ({"box": "UPPER1"}, "EINVAL"), ({"box": "x" * 33}, "EINVAL"),
    ({}, "EINVAL"), ({"box": 7}, "EINVAL"), ({"box": "good1", "image": "../host"}, "EINVAL"),
    ({"box": "good1", "image": "nothere"}, "ENOENT"), ({"box": "good1", "hostname": "a b"}, "EINVAL"),
    ({"box": "good1", "hostname": "-x"}, "EINVAL"), ({"box": "good1", "env": {"A=B": "x"}}, "EINVAL"),
    ({"box": "good1", "env": {"1A": "x"}}, "EINVAL"), ({"box": "good1", "env": {"A": 5}}, "EINVAL"),
    ({"box": "good1", "env": {f"V{i}": "" for i in range(65)}}, "EINVAL"),
])
def test_bad_requests_are_refused(boxhost, fields, code):
    with pytest.raises(Refused) as refused:
        boxhost.call("create", **fields)
    assert refused.value.code == code
    assert boxhost.boxes() == {}


def test_malformed_messages_get_answers(boxhost):
    for raw in (b"{", b"[]", b"7", b'{"id":1,"op":"hello","op":"list"}', b"\xff\xfe", b'{"op":"fly","id":3}', b"x" * 65537):
        boxhost.sock.send(raw)
        answer = json.loads(boxhost.sock.recv(1 << 17))
        assert answer["code"] in ("EINVAL", "ENOSYS") and answer["error"]
    assert boxhost.call("hello")["version"]


def test_a_name_is_taken_once(boxhost):
    box = boxhost.create()
    with pytest.raises(Refused) as refused:
        boxhost.create(box.id)
    assert refused.value.code == "EEXIST"
    assert box.ok("echo alive").strip() == "alive"


def test_sizes_are_clamped(boxhost):
    box = boxhost.create(size={"cpus": 1e9, "memoryBytes": 1, "pids": 0, "diskBytes": 5})
    size = boxhost.boxes()[box.id]["size"]
    assert size["cpus"] <= os.cpu_count() and size["memoryBytes"] == 32 * MIB and size["pids"] == 16
    assert size["diskBytes"] == 64 * MIB


def test_the_socket_is_the_servers(boxhost_factory):
    host = boxhost_factory(uid=12345)
    box = host.create()
    info = os.stat(box.socket)
    assert info.st_uid == 12345 and info.st_mode & 0o777 == 0o600


def test_exit_of_pid_1_is_told(boxhost):
    box = boxhost.create()
    os.kill(box.pid, signal.SIGKILL)
    event = boxhost.event()
    assert event == {"event": "exited", "box": box.id, "how": "killed 9"}
    assert boxhost.boxes()[box.id]["state"] == "dead"
    box.destroy()


def test_a_boxd_that_does_not_start_leaves_nothing(boxhost_factory):
    host = boxhost_factory(boxd="/usr/bin/true")
    for _ in range(3):
        with pytest.raises(Refused):
            host.create("fails1")
    assert host.boxes() == {} and list((host.state / "boxhost" / "boxes").iterdir()) == []
    assert list((host.state / "run").iterdir()) == []
    assert not [p for p in Path("/sys/fs/cgroup").glob(f"**/psbx-{host.instance}/fails1")]


def test_freeze_and_thaw(boxhost):
    box = boxhost.create()
    box.ok("(while :; do :; done) >/dev/null 2>&1 & echo $! > /tmp/pid")
    boxhost.call("freeze", box=box.id)
    before = box.stats()["cpuUsec"]
    assert boxhost.boxes()[box.id]["state"] == "frozen"
    subprocess.run(["sleep", "0.3"])
    assert box.stats()["cpuUsec"] - before < 50000
    boxhost.call("thaw", box=box.id)
    until(lambda: box.stats()["cpuUsec"] - before > 50000)
    boxhost.call("freeze", box=box.id)
    box.destroy()  # a frozen box ends too


INSIDE = r"""
import ctypes, errno, os, socket
libc = ctypes.CDLL(None, use_errno=True)
def refused(name, number, *args):
    r = libc.syscall(number, *args)
    print(name, "allowed" if r >= 0 else errno.errorcode[ctypes.get_errno()])
def family(name, *args):
    try:
        socket.socket(*args); print(name, "allowed")
    except OSError as e:
        print(name, errno.errorcode[e.errno])
def write(path):
    try:
        open(path, "w").write("1"); print(path, "allowed")
    except OSError as e:
        print(path, errno.errorcode[e.errno])
buffer = ctypes.create_string_buffer(256)
refused("mount", 165, b"t", b"/mnt", b"tmpfs", 0, None)
refused("unshare-mount", 272, 0x20000)
refused("unshare-net", 272, 0x40000000)
refused("unshare-user-net", 272, 0x50000000)
refused("clone-mount", 56, 0x20000 | 17, 0, 0, 0, 0)
refused("clone-user-mount", 56, 0x10020000 | 17, 0, 0, 0, 0)
refused("clone-net", 56, 0x40000000 | 17, 0, 0, 0, 0)
refused("clone3", 435, buffer, 88)
refused("setns", 308, 0, 0)
refused("io_uring", 425, 8, buffer)
refused("bpf", 321, 0, buffer, 128)
refused("keyctl", 250, 0, -3, 0)
refused("perf", 298, buffer, 0, -1, -1, 0)
refused("userfaultfd", 323, 0)
refused("handle", 304, -100, buffer, 0)
refused("syslog", 103, 3, buffer, 10)
refused("sethostname", 170, b"x", 1)
refused("x32", 0x40000000 | 39)
refused("unknown", 4000)
refused("open_tree_attr", 467, -100, b"/", 0, buffer, 32)
family("packet", socket.AF_PACKET, socket.SOCK_RAW, 3)
family("vsock", 40, socket.SOCK_STREAM)
family("alg", 38, socket.SOCK_SEQPACKET)
family("inet", socket.AF_INET, socket.SOCK_STREAM)
family("unix", socket.AF_UNIX, socket.SOCK_STREAM)
try:
    os.mknod("/tmp/disk", 0o60600, os.makedev(7, 0)); print("mknod allowed")
except OSError as e:
    print("mknod", errno.errorcode[e.errno])
write("/proc/sys/kernel/hostname"); write("/proc/sysrq-trigger"); write("/proc/sys/net/ipv4/ip_forward")
import fcntl, pty
master, slave = pty.openpty()
try:
    fcntl.ioctl(slave, 0x5412, b"x"); print("tiocsti allowed")
except OSError as e:
    print("tiocsti", errno.errorcode[e.errno])
print("slave-group", os.fstat(slave).st_gid)
print("pids", [int(p) for p in os.listdir("/proc") if p.isdigit() and int(p) == 1], len([p for p in os.listdir("/proc") if p.isdigit()]))
"""


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the numbers are those of x86-64")
def test_what_a_box_is_refused(boxhost):
    lines = dict(line.split(" ", 1) for line in boxhost.create().python(INSIDE).strip().splitlines())
    # User namespaces are left to boxd, which takes them from every command: e2e/test_screen_chromium.py.
    eperm = ("mount unshare-mount unshare-net unshare-user-net clone-mount clone-user-mount clone-net setns bpf keyctl perf "
             "userfaultfd handle syslog sethostname mknod tiocsti").split()
    assert {name: lines[name] for name in eperm} == dict.fromkeys(eperm, "EPERM")
    enosys = "clone3 io_uring x32 unknown open_tree_attr".split()
    assert {name: lines[name] for name in enosys} == dict.fromkeys(enosys, "ENOSYS")
    assert lines["packet"] == lines["vsock"] == lines["alg"] == "EAFNOSUPPORT"
    assert lines["inet"] == lines["unix"] == "allowed"
    assert lines["/proc/sys/kernel/hostname"] == "EROFS" and lines["/proc/sys/net/ipv4/ip_forward"] == "EROFS"
    assert lines["/proc/sysrq-trigger"] in ("EACCES", "EROFS", "ENOENT", "EPERM")
    assert lines["slave-group"] == "5"


def test_identity_inside(boxhost):
    box = boxhost.create()
    status = dict(line.split(":\t", 1) for line in box.ok("cat /proc/self/status").splitlines() if ":\t" in line)
    kept = 0
    for cap in (0, 1, 3, 4, 5, 6, 7, 10, 13, 18, 31):
        kept |= 1 << cap
    assert int(status["CapEff"], 16) == int(status["CapBnd"], 16) == int(status["CapPrm"], 16) == kept
    assert int(status["CapInh"], 16) == int(status["CapAmb"], 16) == 0
    assert status["NoNewPrivs"] == "1" and status["Seccomp"] == "2"
    assert {line.split(":")[2] for line in box.ok("cat /proc/self/cgroup").split()} == {"/"}
    base = 0x70000000 + box.index * 65536
    assert box.ok("cat /proc/self/uid_map").split() == ["0", str(base), "65536"]
    assert box.ok("cat /proc/self/gid_map").split() == ["0", str(base), "65536"]
    assert sorted(os.listdir("/proc/self/fd"))  # ours; below: PID 1 of the box has nothing of boxhost's
    fds = box.ok("ls -l /proc/1/fd")
    assert len([l for l in fds.splitlines() if "->" in l and "socket" not in l and "/dev/null" not in l and "proc" not in l]) == 0
    mounts = box.ok("cat /proc/self/mountinfo")
    assert str(boxhost.state) not in mounts and "sysfs" not in mounts
    assert str(boxhost.boxd) not in mounts  # boxd itself is seen as a copy that says nothing of where it lies
    assert box.ok("cat /proc/sys/user/max_net_namespaces").strip() == "32"
    assert len(box.ok("cat /etc/machine-id").strip()) == 32
    assert box.ok("ls /sys").strip() == ""
    assert "size=1048576k" in box.ok("grep ' /dev/shm ' /proc/mounts")


def test_dev_is_private_and_read_only(boxhost):
    box = boxhost.create()
    assert sorted(box.ok("ls /dev").split()) == sorted(
        "fd full mqueue null ptmx pts random shm stderr stdin stdout tty urandom zero".split())
    assert box.sh("touch /dev/x")[1] != 0 and box.sh("rm /dev/null")[1] != 0
    box.ok("echo x > /dev/null; head -c 4 /dev/urandom > /dev/shm/r; test -s /dev/shm/r; echo hi | (cat </dev/stdin) | grep hi")


def test_boxes_have_own_uids_and_cannot_see_each_other(boxhost):
    a, b = boxhost.create(), boxhost.create()
    assert a.index != b.index and a.address != b.address
    a.ok("echo secret-of-a > /tmp/f; chmod 600 /tmp/f; sleep 1000 >/dev/null 2>&1 &")
    assert "sleep" not in b.ok("cat /proc/*/cmdline 2>/dev/null | tr '\\0' ' '")
    assert b.sh("cat /tmp/f")[1] != 0
    assert os.stat(f"/proc/{a.pid}").st_uid == 0x70000000 + a.index * 65536


def test_the_image_can_be_changed_and_the_machine_cannot(boxhost):
    box = boxhost.create()
    box.ok("echo mine > /usr/bin/psbx-probe && echo mine > /etc/psbx-probe && rm -rf /usr/share/doc && mkdir /usr/share/doc")
    assert not os.path.exists("/usr/bin/psbx-probe") and not os.path.exists("/etc/psbx-probe")
    assert os.path.exists("/usr/share")
    assert boxhost.create().sh("cat /usr/bin/psbx-probe")[1] != 0
    box.ok("useradd -m someone && su someone -c 'id -un' | grep someone")
    box.ok("mkdir /work/d && mv /work/d /work/e && ln -s /work/e /work/l && chown 1000:1000 /work/e")


PLACES = ["etc/ssh/psbx_canary_key", "etc/apt/auth.conf.d/psbx-canary.conf", "etc/psbx-canary-secret", "root/.psbx-canary",
          "etc/ssl/private/psbx-canary.key", "var/lib/psbx-canary", "home/psbx-canary", "opt/psbx-canary", "srv/psbx-canary",
          "etc/apt/sources.list.d/psbx-canary.list", "etc/profile.d/psbx-canary.sh"]
CANARY = "canary-7f3a91"


@pytest.fixture
def machine_with_secrets(tmp_path):
    """Prefix for a command that sees canaries in the places where machines keep secrets. The machine itself is not touched."""
    script = ["set -e"]
    overlays = ["etc", "root", "var", "home", "opt", "srv"]
    for top in overlays:
        upper, work = tmp_path / top / "upper", tmp_path / top / "work"
        upper.mkdir(parents=True)
        work.mkdir()
        upper.chmod(os.stat("/" + top).st_mode & 0o7777)
        for place in PLACES:
            if place.split("/")[0] == top:
                path = upper / Path(*place.split("/")[1:])
                path.parent.mkdir(parents=True, exist_ok=True)
                text = f"deb http://user:{CANARY}@example.invalid/ x y\n" if place.endswith(".list") else CANARY + "\n"
                path.write_text(text)
                path.chmod(0o644 if "sources" in place or "profile.d" in place else 0o600)
        if top == "etc":
            shadow = upper / "shadow"
            shadow.write_text(f"root:{CANARY}:19000:0:99999:7:::\n")
            shadow.chmod(0o600)
        script.append(f"mount -t overlay o -o lowerdir=/{top},upperdir={upper},workdir={work} /{top}")
    script.append('exec "$@"')
    return ["unshare", "-m", "sh", "-c", "\n".join(script), "sh"]


def test_no_secret_of_the_machine_is_in_view(boxhost_factory, machine_with_secrets):
    probe = subprocess.run([*machine_with_secrets, "cat", "/etc/shadow"], capture_output=True, text=True)
    if CANARY not in probe.stdout:
        pytest.skip("no overlay over the machine's folders for canaries: " + probe.stderr.strip())
    host = boxhost_factory(prefix=machine_with_secrets)
    box = host.create()
    found = box.sh(f"grep -rlsF {CANARY} /etc /root /home /var /opt /srv /run /tmp /work /boot /mnt /media", 120)[0]
    assert found.strip() == ""
    names = box.ok("find / -xdev -name '*canary*' 2>/dev/null || true; cat /etc/shadow")
    assert "canary" not in names and "root:*:" in names
    assert box.sh("ls /etc/ssh /etc/apt/auth.conf.d /etc/ssl/private ~/.ssh")[0].count("cannot access") >= 3
    people = [line.split(":")[0] for line in box.ok("cat /etc/passwd").splitlines() if 1000 <= int(line.split(":")[2]) < 65534]
    assert people == []


def test_other_images(boxhost):
    root = make_image(boxhost, "tiny")
    try:
        assert {"name": "tiny", "ready": True, "default": False, "version": "rootfs"} in boxhost.call("images")["images"]
        box = boxhost.create(image="tiny", hostname="tiny-1")
        assert box.ok("id -u; cat /etc/hostname").split() == ["0", "tiny-1"]
        assert "198.18.0.1" in box.ok("cat /etc/resolv.conf") and "tiny-1" in box.ok("cat /etc/hosts")
        assert box.ok("stat -c %u /bin/cat").strip() == "0"
        bundle = Path("/etc/ssl/certs/ca-certificates.crt")
        if bundle.exists():
            assert int(box.ok("stat -c %s /etc/ssl/certs/ca-certificates.crt")) == bundle.stat().st_size
        assert box.sh("ls /usr/bin/python3")[1] != 0
        assert not (root / "etc").exists()
        box.destroy()
    finally:
        shutil.rmtree(root.parent)


def test_an_image_whose_links_lead_out(boxhost, tmp_path):
    root = make_image(boxhost, "hostile")
    try:
        victim = tmp_path / "victim"
        victim.mkdir(mode=0o777)
        victim.chmod(0o777)
        os.chmod(tmp_path, 0o755)
        (root / "etc").symlink_to(victim)
        box = boxhost.create(image="hostile")
        assert box.ok("echo on").strip() == "on"
        box.destroy()
        assert list(victim.iterdir()) == []
    finally:
        shutil.rmtree(root.parent)


def test_state_folder_of_a_stranger_is_refused(boxhost_factory, tmp_path):
    (tmp_path / "boxhost").mkdir()
    os.chown(tmp_path / "boxhost", 12345, 12345)
    run = subprocess.run([os.environ.get("BOXHOST") or boxhost_factory().process.args[0], "--state", str(tmp_path),
                          "--server-uid", "0", "--boxd", "/usr/bin/true", "--listen", str(tmp_path / "s")],
                         capture_output=True, text=True, timeout=30)
    assert run.returncode != 0 and "must belong to root" in run.stderr


def test_one_boxhost_per_state_folder(boxhost):
    run = subprocess.run([boxhost.process.args[0], "--state", str(boxhost.state), "--server-uid", "0", "--boxd", "/usr/bin/true",
                          "--listen", str(boxhost.state / "s")], capture_output=True, text=True, timeout=30)
    assert run.returncode != 0 and "another boxhost" in run.stderr


def test_fifty_boxes_leave_nothing(boxhost_factory):
    boxhost = boxhost_factory()
    small = {"cpus": 1, "memoryBytes": 64 * MIB, "pids": 32, "diskBytes": 1 * GIB}
    boxes = [boxhost.create(size=small) for _ in range(50)]
    assert len({b.index for b in boxes}) == 50
    assert all(b.ok("echo x > /tmp/x; sleep 100 >/dev/null 2>&1 & echo ok").strip() == "ok" for b in boxes)
    pids = [b.pid for b in boxes]
    for b in boxes:
        b.destroy()
    assert boxhost.boxes() == {}
    assert not any(os.path.exists(f"/proc/{p}") for p in pids)
    assert not {p.name for p in Path("/sys/class/net").iterdir()} & {f"psb{b.index}" for b in boxes}
    assert list((boxhost.state / "boxhost" / "boxes").iterdir()) == [] and list((boxhost.state / "run").iterdir()) == []
    assert not [p for p in Path("/sys/fs/cgroup").glob(f"**/psbx-{boxhost.instance}/*") if p.is_dir()]
    until(lambda: not [l for l in loops(boxhost.state) if "/pool/" not in l])
    boxhost.cleanup()
    until(lambda: boxhost.traces() == [])


def test_list_names_every_box(boxhost):
    small = {"cpus": 1, "memoryBytes": 64 * MIB, "pids": 32, "diskBytes": 1 * GIB}
    ids = {boxhost.create(size=small).id for _ in range(8)}
    assert set(boxhost.boxes()) == ids
