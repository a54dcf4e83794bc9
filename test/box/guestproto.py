"""A client of the guest protocol (docs/guest-protocol.md) and a launcher that runs the real boxd in fresh namespaces.

Usable on its own: `with Box() as box: box.exec("true")`. The boxd program is found through BOXD (path), else in build/bin.
"""

import json
import os
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time

CONTROL, STDIN, STDOUT, STDERR, DATA = range(5)
END = 1
HEADER = struct.Struct("<BBHI")


class Gone(Exception):
    """The connection ended without a result."""


class Reply(dict):
    """The result's fields; .events, .streams (bytes by stream number), .ended (streams that carried the end flag)."""

    def __init__(self):
        super().__init__()
        self.events = []
        self.streams = {}
        self.ended = set()

    @property
    def stdout(self):
        return bytes(self.streams.get(STDOUT, b""))

    @property
    def stderr(self):
        return bytes(self.streams.get(STDERR, b""))

    @property
    def data(self):
        return bytes(self.streams.get(DATA, b""))


class Conn:
    def __init__(self, path, timeout=60):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(timeout)
        self.sock.connect(path)

    def close(self):
        self.sock.close()

    def send(self, stream, payload=b"", flags=0):
        self.sock.sendall(HEADER.pack(stream, flags, 0, len(payload)) + payload)

    def head(self, op, **fields):
        self.send(CONTROL, json.dumps({"v": 1, "op": op, **fields}).encode())

    def send_stream(self, stream, data, piece=1 << 18):
        view = memoryview(data)
        for i in range(0, len(view), piece):
            self.send(stream, bytes(view[i:i + piece]))
        self.send(stream, b"", END)

    def try_send_stream(self, stream, data):
        """The peer may have answered and closed before it took everything."""
        try:
            self.send_stream(stream, data)
        except OSError:
            pass

    def read(self, n):
        parts = []
        while n:
            got = self.sock.recv(min(n, 1 << 20))
            if not got:
                raise Gone()
            parts.append(got)
            n -= len(got)
        return b"".join(parts)

    def frame(self):
        stream, flags, zero, length = HEADER.unpack(self.read(8))
        assert zero == 0 and length <= (1 << 18 if stream == CONTROL else 1 << 20)
        return stream, flags, self.read(length)

    def result(self, reply=None):
        """Reads frames until the result."""
        reply = Reply() if reply is None else reply
        while True:
            stream, flags, payload = self.frame()
            if stream == CONTROL:
                fields = json.loads(payload)
                if fields.get("done"):
                    reply.update(fields)
                    return reply
                reply.events.append(fields)
                continue
            reply.streams.setdefault(stream, bytearray()).extend(payload)
            if flags & END:
                reply.ended.add(stream)


def entry(path, content=None, link=None, executable=False, digest=None, size=None):
    """One entry of a diff plan."""
    import hashlib
    if isinstance(path, str):
        path = os.fsencode(path)
    body = os.fsencode(link) if link is not None else content
    kind = 2 if link is not None else 1 if executable else 0
    digest = digest or hashlib.blake2b(body, digest_size=32).digest()
    return struct.pack("<BQ", kind, len(body) if size is None else size) + digest + struct.pack("<H", len(path)) + path


LAUNCH = r"""
set -e
exec 9<"$BOXD"
mount -t tmpfs -o size="$WORK_SIZE" tmpfs /work
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs tmpfs /media
cp -a /etc/passwd /etc/group /etc/nsswitch.conf /etc/hosts /etc/ld.so.cache /etc/alternatives /media/ 2>/dev/null || true
mount --bind /media /etc
mount -t tmpfs -o size="$STATE_SIZE" tmpfs /var/lib
mount -t tmpfs tmpfs /tmp
mount -t tmpfs tmpfs /run
ip link set lo up 2>/dev/null || true
cd /
exec env -i ${BOX_ENV} /proc/self/fd/9
"""


def boxd_path():
    return os.path.abspath(os.environ.get("BOXD") or os.path.join(os.path.dirname(__file__), "../../build/bin/boxd"))


def remove_dir(path):
    try:
        os.rmdir(path)
    except OSError as e:
        return e
    return None


def pids_cgroup(limit):
    """A cgroup of its own with a process limit (v1 or v2), or None where there is none to be had."""
    for root in ("/sys/fs/cgroup/pids", "/sys/fs/cgroup"):
        path = os.path.join(root, f"boxd-test-{os.getpid()}-{time.monotonic_ns()}")
        try:
            os.mkdir(path)
            with open(os.path.join(path, "pids.max"), "w") as f:
                f.write(str(limit))
            return path
        except OSError:
            remove_dir(path)
    return None


class Box:
    """The real boxd as PID 1 of fresh user, pid, mount and network namespaces, with a private /work."""

    def __init__(self, work_size="2g", state_size="1g", pids=None, env="", net=True):
        self.dir = tempfile.mkdtemp(prefix="boxd-")
        self.path = os.path.join(self.dir, "sock")
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(self.path)
        listener.listen(128)
        ready_r, ready_w = os.pipe()

        self.cgroup = pids_cgroup(pids) if pids else None

        def fds():
            if self.cgroup:
                with open(os.path.join(self.cgroup, "cgroup.procs"), "w") as f:
                    f.write(str(os.getpid()))
            os.dup2(listener.fileno(), 100)
            os.dup2(ready_w, 101)
            os.dup2(100, 3)
            os.dup2(101, 4)
            os.closerange(5, 200)

        args = ["unshare", "-Urpfm", "--mount-proc", "--kill-child=KILL"] + (["-n"] if net else [])
        environ = {**os.environ, "BOXD": boxd_path(), "WORK_SIZE": work_size, "STATE_SIZE": state_size,
                   "BOX_ENV": env}
        self.process = subprocess.Popen(args + ["bash", "-c", LAUNCH], env=environ, close_fds=False, preexec_fn=fds,
                                        stdin=subprocess.DEVNULL)
        os.close(ready_w)
        listener.close()
        assert os.read(ready_r, 1) == b"R", "boxd did not get ready"
        os.close(ready_r)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()

    def close(self):
        self.process.kill()
        self.process.wait()
        if self.cgroup:
            wait_until(lambda: not remove_dir(self.cgroup), 10)
        try:
            os.unlink(self.path)
            os.rmdir(self.dir)
        except OSError:
            pass

    def pid1(self):
        """boxd's pid as the host sees it."""
        with open(f"/proc/{self.process.pid}/task/{self.process.pid}/children") as f:
            return int(f.read().split()[0])

    def alive(self):
        return self.process.poll() is None

    def connect(self, timeout=60):
        return Conn(self.path, timeout)

    def op(self, op, _data=None, _timeout=60, **fields):
        c = self.connect(_timeout)
        try:
            c.head(op, **fields)
            if _data is not None:
                c.try_send_stream(DATA, _data)
            return c.result()
        finally:
            c.close()

    serial = 0

    def exec(self, cmd, stdin=None, _timeout=60, **fields):
        Box.serial += 1
        c = self.connect(_timeout)
        try:
            fields.setdefault("id", f"j{Box.serial}")
            c.head("exec", cmd=cmd, stdin=stdin is not None, **fields)
            if stdin is None:
                return c.result()
            feeder = threading.Thread(target=c.try_send_stream, args=(STDIN, stdin))
            feeder.start()
            try:
                return c.result()
            finally:
                c.sock.shutdown(socket.SHUT_RDWR)
                feeder.join()
        finally:
            c.close()

    def put(self, dest, tar, **fields):
        return self.op("put", _data=tar, dest=dest, format="tar", **fields)

    def get(self, path, **fields):
        return self.op("get", path=path, **fields)

    def diff(self, dest, entries):
        reply = self.op("diff", _data=b"".join(entries), dest=dest)
        reply.need = list(struct.unpack(f"<{len(reply.data) // 4}I", reply.data))
        return reply

    def procs(self, action, **fields):
        return self.op("procs", action=action, **fields)


def wait_until(check, seconds=10, every=0.02):
    limit = time.monotonic() + seconds
    while time.monotonic() < limit:
        if check():
            return True
        time.sleep(every)
    return False


__all__ = ["Box", "Conn", "Gone", "Reply", "boxd_path", "entry", "wait_until", "CONTROL", "STDIN", "STDOUT", "STDERR", "DATA", "END",
           "signal"]
