"""Helpers for tests with real boxes: a boxhost in a state folder of its own, spoken to over its request socket.

    def test_x(boxhost):            # without boxes before and after
        box = boxhost.create()
        out, code = box.sh("id -u")

`boxhost_factory(**options)` starts more of them. Programs are found through BOXHOST, else in build/bin; PID 1 is a small
stand-in for boxd (boxhost_agent.c) unless boxd= names another program.
"""

import itertools
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
GIB = 1 << 30
_ids = itertools.count(1)


def program(name):
    path = os.environ.get(name.upper()) or str(TOP / "build" / "bin" / name)
    if not os.access(path, os.X_OK):
        pytest.skip(f"{path} is not built")
    return path


class Refused(Exception):
    """boxhost answered with an error; .code is its name."""

    def __init__(self, answer):
        super().__init__(answer["error"])
        self.code = answer["code"]


class Box:
    def __init__(self, host, name, answer):
        self.host, self.id, self.answer = host, name, answer
        self.socket, self.pid, self.index, self.address = (answer.get(k) for k in ("socket", "pid", "index", "address"))

    def sh(self, command, timeout=60):
        """Runs a command in the box: (output, exit code)."""
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(timeout)
            s.connect(self.socket)
            s.sendall(command.encode())
            s.shutdown(socket.SHUT_WR)
            out = bytearray()
            while piece := s.recv(1 << 16):
                out += piece
        text, _, code = out.rpartition(b"\n")
        return text.decode(errors="replace"), int(code)

    def ok(self, command, timeout=60):
        out, code = self.sh(command, timeout)
        assert code == 0, f"{command!r} ended with {code}: {out}"
        return out

    def python(self, text, timeout=60):
        return self.ok("/usr/bin/python3 - <<'EOF'\n" + text + "\nEOF", timeout)

    def destroy(self):
        return self.host.call("destroy", box=self.id)

    def stats(self):
        return self.host.call("stats", box=self.id)


class BoxHost:
    def __init__(self, state, boxd, extra=(), prefix=(), uid=None):
        self.state, self.boxd, self.extra, self.prefix = Path(state), boxd, list(extra), list(prefix)
        self.uid = os.getuid() if uid is None else uid
        self.events, self.process, self.sock, self._next = [], None, None, itertools.count(1)
        self.start()

    def start(self):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        argv = [*self.prefix, program("boxhost"), "--state", str(self.state), "--server-uid", str(self.uid), "--boxd",
                self.boxd, "--fd", str(theirs.fileno()), *self.extra]
        self.process = subprocess.Popen(argv, pass_fds=[theirs.fileno()], start_new_session=True)
        theirs.close()
        ours.settimeout(60)
        self.sock = ours

    def send(self, op, **fields):
        number = next(self._next)
        self.sock.send(json.dumps({"id": number, "op": op, **fields}).encode())
        return number

    def receive(self, number):
        while True:
            raw = self.sock.recv(1 << 17)
            if not raw:
                raise ConnectionError("boxhost is gone")
            message = json.loads(raw)
            if message.get("id") == number and "event" not in message:
                return message
            self.events.append(message)

    def call(self, op, **fields):
        answer = self.receive(self.send(op, **fields))
        if "error" in answer:
            raise Refused(answer)
        return answer

    def event(self, timeout=10):
        """The next event, waited for."""
        self.sock.settimeout(timeout)
        try:
            while not self.events:
                self.events.append(json.loads(self.sock.recv(1 << 17)))
        finally:
            self.sock.settimeout(60)
        return self.events.pop(0)

    def create(self, box=None, **fields):
        box = box or f"t{next(_ids):05d}"
        fields.setdefault("size", {"cpus": 1, "memoryBytes": 512 << 20, "pids": 128, "diskBytes": 1 * GIB})
        return Box(self, box, self.call("create", box=box, **fields))

    def boxes(self):
        found, after = {}, ""
        while True:
            page = self.call("list", after=after)
            found.update({b["box"]: b for b in page["boxes"]})
            if "next" not in page:
                return found
            after = page["next"]

    @property
    def instance(self):
        return (self.state / "boxhost" / "instance").read_text()

    def kill(self):
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.sock.close()

    def stop(self):
        self.sock.close()
        self.process.wait(30)

    def restart(self):
        self.kill()
        self.start()

    def cleanup(self):
        if self.process.poll() is None:
            self.stop()
        subprocess.run([*self.prefix, program("boxhost"), "--cleanup", "--state", str(self.state)], check=True, timeout=120)

    def traces(self):
        """What the machine still has of this instance: a list of texts, empty when clean."""
        name = f"psbx-{self.instance}"
        found = [str(p) for p in Path("/sys/fs/cgroup").glob(f"**/{name}")]
        tables = subprocess.run([*self.prefix, "nft", "list", "tables"], capture_output=True, text=True).stdout
        found += [line for line in tables.splitlines() if self.instance in line]
        found += loops(self.state)
        found += [line for line in Path("/proc/mounts").read_text().splitlines() if str(self.state) in line]
        return found


def loops(state):
    """Loop devices whose file lies in the state folder."""
    found = []
    for path in Path("/sys/block").glob("loop*/loop/backing_file"):
        try:
            text = path.read_text().strip()
        except OSError:
            continue
        if text.startswith(str(state)):
            found.append(text)
    return found


def until(what, timeout=15):
    """Waits until what() is true and returns its value."""
    end = time.monotonic() + timeout
    while not (value := what()):
        assert time.monotonic() < end, f"not within {timeout} s"
        time.sleep(0.02)
    return value


def make_image(host, name, folder="rootfs"):
    """A root folder with nothing but a shell, a few programs and the libraries they need."""
    root = host.state / "boxhost" / "images" / name / folder
    for folder in ("bin", "dev", "proc", "run", "tmp", "usr"):
        (root / folder).mkdir(parents=True)
    for program in ("sh", "cat", "ls", "id", "stat"):
        path = shutil.which(program)
        shutil.copy(os.path.realpath(path), root / "bin" / program)
        for library in re.findall(r"(/\S+) \(", subprocess.run(["ldd", path], capture_output=True, text=True).stdout):
            (root / library[1:]).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(os.path.realpath(library), root / library[1:])
    return root


@pytest.fixture(scope="session")
def needs_root():
    if os.geteuid() != 0:
        pytest.skip("boxes need root")


@pytest.fixture(scope="session")
def agent(needs_root, tmp_path_factory):
    """The stand-in for boxd, built once."""
    cc = shutil.which("cc") or shutil.which("gcc")
    if not cc:
        pytest.skip("no C compiler for the stand-in of boxd")
    path = tmp_path_factory.mktemp("agent") / "agent"
    subprocess.run([cc, "-O2", "-static", "-o", path, Path(__file__).with_name("boxhost_agent.c")], check=True)
    return str(path)


def _new_host(boxd, **options):
    # Not below pytest's own folder: the boxes' sockets have short paths this way.
    return BoxHost(tempfile.mkdtemp(prefix="psbt-"), boxd, **options)


def _end_host(host):
    try:
        host.cleanup()
    finally:
        shutil.rmtree(host.state, ignore_errors=True)


@pytest.fixture
def boxhost_factory(needs_root, agent):
    made = []

    def make(boxd=agent, **options):
        made.append(_new_host(boxd, **options))
        return made[-1]

    yield make
    for host in made:
        _end_host(host)


@pytest.fixture(scope="session")
def shared_boxhost(needs_root, agent):
    host = _new_host(agent)
    yield host
    _end_host(host)


@pytest.fixture
def boxhost(shared_boxhost):
    """One boxhost for all tests that leave it running; each test starts and ends with no box."""
    assert shared_boxhost.process.poll() is None, "boxhost ended in an earlier test"
    yield shared_boxhost
    for box in shared_boxhost.boxes():
        shared_boxhost.call("destroy", box=box)
    shared_boxhost.events.clear()
