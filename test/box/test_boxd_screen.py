"""The display of a box, seen by boxd's own protocol: it starts at first need and hands its RFB connection over."""

import json
import shutil
import socket

import pytest

from guestproto import CONTROL, DATA
from boxdbox import fresh, process_count, sh  # noqa: F401 (fixtures)

pytestmark = pytest.mark.skipif(shutil.which("Xtigervnc") is None, reason="no Xtigervnc here")
VERSION = b"RFB 003.008\n"


def framed(box):
    c = box.connect()
    c.head("screen")
    stream, _, payload = c.frame()
    assert stream == CONTROL and json.loads(payload) == {"event": "connected"}
    return c


def receive(c, n):
    got = b""
    while len(got) < n:
        stream, _, payload = c.frame()
        assert stream == DATA
        got += payload
    return got


def test_it_starts_with_the_first_look_and_speaks_rfb(fresh):
    before = process_count(fresh)
    c = framed(fresh)
    assert receive(c, len(VERSION)) == VERSION
    c.send(DATA, VERSION)
    assert receive(c, 2) == b"\1\1"  # one way to authenticate: none
    c.close()
    assert process_count(fresh) > before
    assert sh(fresh, "echo $DISPLAY") == ":99\n"


def test_many_at_once_shut_nobody_out(fresh):
    waiting = [framed(fresh) for _ in range(20)]
    assert [receive(c, len(VERSION)) for c in waiting] == [VERSION] * 20
    for c in waiting:
        c.close()
    assert receive(framed(fresh), len(VERSION)) == VERSION


def test_the_connection_is_handed_over(fresh):
    for _ in range(3):
        c = fresh.connect()
        c.head("screen", **{"pass": True})
        frame, fds, _, _ = socket.recv_fds(c.sock, 4096, 4)
        assert json.loads(frame[8:]) == {"passed": True, "done": True} and len(fds) == 1
        direct = socket.socket(fileno=fds[0])
        assert direct.family == socket.AF_UNIX and c.sock.recv(1) == b""  # boxd is out of it
        direct.setblocking(True)
        assert direct.recv(12) == VERSION
        direct.close()
        c.close()


def test_sockets_are_there_from_the_start_and_after_its_end(fresh):
    assert sh(fresh, "stat -c '%F %a' /tmp/.X11-unix/X99") == "socket 777\n"
    assert sh(fresh, "grep -c @/tmp/.X11-unix/X99 /proc/net/unix") == "1\n"
    assert sh(fresh, "pgrep -c Xtigervnc; true") == "0\n"
    framed(fresh).close()
    sh(fresh, "rm -rf /tmp/.X11-unix; pkill Xtigervnc; while pgrep Xtigervnc; do sleep 0.05; done")
    framed(fresh).close()
    assert sh(fresh, "stat -c '%F' /tmp/.X11-unix/X99") == "socket\n"


def test_why_there_is_none(fresh):
    sh(fresh, "mount --bind /dev/null /usr/bin/Xtigervnc")  # Xvnc is a link to it
    r = fresh.op("screen")
    assert r["code"] == "ENOENT" and "Xtigervnc" in r["error"] and "`debian`" in r["error"]
    sh(fresh, "umount /usr/bin/Xtigervnc; printf '#!/bin/sh\\necho out of luck >&2; exit 3\\n' > /tmp/x; chmod +x /tmp/x; "
              "mount --bind /tmp/x /usr/bin/Xtigervnc")
    for _ in range(3):
        r = fresh.op("screen")
        assert r["code"] == "EIO" and "out of luck" in r["error"]
    sh(fresh, "umount /usr/bin/Xtigervnc")
    framed(fresh).close()
