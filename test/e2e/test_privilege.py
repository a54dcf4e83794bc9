"""Who runs with which rights, and what the server's process may still do after its start."""

import ctypes
import json
import os
import signal
import subprocess
import urllib.request
from pathlib import Path

import pytest
from instance import programs, until
from mcpclient import McpClient

NOBODY = 65534


def status(pid):
    fields = (line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return {key: value.split() for key, value in fields}


def test_the_server_has_no_rights(server, box):
    seen = status(server.process.pid)
    for name in ("CapEff", "CapPrm", "CapInh", "CapAmb"):
        assert int(seen[name][0], 16) == 0, name
    assert set(seen["Uid"]) == set(seen["Gid"]) and len(set(seen["Uid"])) == 1
    assert int(seen["Uid"][0]) >= 1000
    assert seen["Groups"] in ([], seen["Gid"][:1])
    assert seen["NoNewPrivs"] == ["1"]
    for thread in Path(f"/proc/{server.process.pid}/task").iterdir():
        fields = status(thread.name)
        assert int(fields["CapEff"][0], 16) == 0 and fields["Uid"] == seen["Uid"], "every thread of it"
    assert os.stat(server.state / "state.db").st_uid == int(seen["Uid"][0])


def test_it_holds_nothing_of_root(server, box):
    """No open descriptor of it gives what its user could not open."""
    for link in Path(f"/proc/{server.process.pid}/fd").iterdir():
        try:
            target = os.readlink(link)
        except OSError:
            continue
        if target.startswith("/") and not target.startswith((str(server.state), "/mnt/state", "/dev/", "/proc/")):
            assert target.startswith(str(server.base)) or target.startswith("/usr") or target.endswith(".so"), target


def test_nobody_of_its_user_can_look_inside(server):
    uid = int(status(server.process.pid)["Uid"][0])
    libc = ctypes.CDLL(None, use_errno=True)

    child = os.fork()
    if child == 0:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
        attached = libc.ptrace(16, server.process.pid, 0, 0) == 0  # PTRACE_ATTACH
        try:
            with open(f"/proc/{server.process.pid}/mem", "rb"):
                readable = True
        except OSError:
            readable = False
        os._exit(attached * 1 + readable * 2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert server.get("/healthz")[0] == 200


def test_only_boxhost_and_its_supervisor_are_root(server, box):
    root = [(pid, command) for pid, command in server.processes() if "0" in status(pid)["Uid"]]
    for pid, command in root:
        assert pid == server.supervisor_pid() or command.split(" ")[0].endswith("/boxhost"), command
    assert {server.supervisor_pid(), server.boxhost_pid()} <= {pid for pid, _ in root}
    inside = status(server.box_pid(box))
    assert int(inside["Uid"][0]) >= 0x70000000, "root of a box is nobody outside"
    assert inside["NoNewPrivs"] == ["1"] and inside["Seccomp"] == ["2"]


def test_secrets_are_for_the_server_alone(server, box):
    uid = int(status(server.process.pid)["Uid"][0])
    for name in ("state.db", "link.key", "objects", "lock"):
        found = os.stat(server.state / name)
        assert found.st_uid in (0, uid) and found.st_mode & 0o077 == 0, name
    assert os.stat(server.state).st_mode & 0o066 == 0
    sock = os.stat(server.state / "run" / f"{box}.sock")
    assert sock.st_uid == uid and sock.st_mode & 0o077 == 0


def as_nobody(*arguments, cwd="/", timeout=60):
    return subprocess.run([*map(str, arguments)], cwd=cwd, user=NOBODY, group=NOBODY, extra_groups=[], capture_output=True, text=True,
                          timeout=timeout, check=False, stdin=subprocess.DEVNULL)


@pytest.fixture
def reachable(server):
    """The programs where every user can run them."""
    folder = server.base / "bin"
    if not folder.exists():
        folder.mkdir()
        for name in ("parallelsandbox", "boxhost", "boxd"):
            (folder / name).write_bytes((programs() / name).read_bytes())
            (folder / name).chmod(0o755)
    own = server.base / "nobody"
    own.mkdir(exist_ok=True)
    os.chown(own, NOBODY, NOBODY)
    return folder, own


def test_without_root_it_says_what_is_missing(reachable):
    folder, own = reachable
    done = as_nobody(folder / "parallelsandbox", "serve", "--state", own / "state", "--listen", "127.0.0.1:0")
    assert done.returncode == 1
    assert "root" in done.stderr and "--boxhost" in done.stderr
    assert done.stdout == ""


def test_without_root_it_serves_with_a_boxhost_of_root(reachable):
    """boxhost listens, for one uid only; the server connects and needs no right of its own."""
    folder, own = reachable
    state = own / "with-boxhost"
    state.mkdir()
    os.chown(state, NOBODY, NOBODY)
    sock = own / "boxhost.sock"
    boxhost = subprocess.Popen([folder / "boxhost", "--state", state, "--server-uid", str(NOBODY), "--peer-uid", str(NOBODY), "--boxd", folder / "boxd",
                                "--listen", sock], stdin=subprocess.DEVNULL, start_new_session=True)
    server = None
    try:
        until(sock.exists)
        server = subprocess.Popen([folder / "parallelsandbox", "serve", "--state", state, "--listen", "127.0.0.1:0", "--boxhost", sock], user=NOBODY,
                                  group=NOBODY, extra_groups=[], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        url = json.loads(server.stdout.readline())["listening"]

        def ready():
            try:
                return urllib.request.urlopen(url + "/readyz", timeout=5).status == 200
            except OSError:
                return False

        until(ready)
        key = as_nobody(folder / "parallelsandbox", "keys", "add", "k", "--state", state).stdout.strip()
        client = McpClient(url, key)
        client.initialize()
        box = client.start(size="small")
        assert client.exec(box, "echo made without root")["stdout"] == "made without root\n"
        assert status(server.pid)["Uid"] == [str(NOBODY)] * 4
        client.stop(box)
        client.close()
    finally:
        for process in (server, boxhost):
            if process:
                process.send_signal(signal.SIGTERM)
                process.wait(30)
        subprocess.run([folder / "boxhost", "--cleanup", "--state", state], check=True, timeout=60)
