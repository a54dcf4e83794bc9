"""Declared names: the socket that their connections arrive at, who may reach it, and the resolver's answers about them."""

import array
import json
import os
import signal
import socket
import struct

import pytest

from conftest import Refused, until

SO_ORIGINAL_DST = 80

LOOK_UP = """
import socket, os, struct
def ask(name, kind=1):
    q = os.urandom(2) + b"\\1\\0\\0\\1\\0\\0\\0\\0\\0\\0" + bytes([len(name)]) + name.encode() + b"\\0" + struct.pack(">HH", kind, 1)
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(5); s.sendto(q, ("198.18.0.1", 53))
    try:
        a = s.recv(4096)
    except OSError:
        return "no answer"
    assert a[:2] == q[:2] and a[12:] [:len(q) - 12] == q[12:]
    count = struct.unpack(">H", a[6:8])[0]
    return socket.inet_ntoa(a[-4:]) if count else "rcode %d, empty" % (a[3] & 15)
"""


def take_socket(host):
    """The listening socket that boxhost hands out, and its answer."""
    number = host.send("wire")
    raw, fds, _, _ = socket.recv_fds(host.sock, 1 << 16, 4)
    answer = json.loads(raw)
    assert answer["id"] == number, answer
    assert len(fds) == 1, answer
    listener = socket.socket(fileno=fds[0])
    listener.settimeout(20)
    return listener, answer


def look_up(box, *names):
    return box.python(LOOK_UP + "".join(f"print(ask({name!r}))\n" for name in names)).splitlines()


def original(connection):
    _, port, address = struct.unpack("!HH4s", connection.getsockopt(socket.IPPROTO_IP, SO_ORIGINAL_DST, 16)[:8])
    return socket.inet_ntoa(address), port


SEND = "import socket; s = socket.create_connection(({!r}, {}), 10); s.sendall(b'ping'); print(s.recv(9).decode())"


def test_connections_arrive_with_both_their_ends(boxhost):
    listener, answer = take_socket(boxhost)
    assert (answer["first"], answer["count"]) == ("198.18.0.2", 32)
    one, two = boxhost.create(), boxhost.create()
    for box, address, port in ((one, "198.18.0.2", 5432), (two, "198.18.0.33", 80), (two, "198.18.0.2", 65535)):
        # the box waits for its answer in the background, so that this one thread can give it
        box.ok(f"({{ /usr/bin/python3 -c \"{SEND.format(address, port)}\"; }} >/tmp/said 2>&1; echo over >>/tmp/said) >/dev/null 2>&1 &")
        connection, peer = listener.accept()
        assert peer[0] == box.address
        assert original(connection) == (address, port)
        assert connection.recv(4) == b"ping"
        connection.sendall(b"pong")
        connection.close()
        assert until(lambda box=box: box.ok("cat /tmp/said") if "over" in box.ok("cat /tmp/said") else None) == "pong\nover\n"
        box.ok("rm /tmp/said")
    listener.close()


def test_nobody_else_reaches_the_socket(boxhost):
    listener, _ = take_socket(boxhost)
    box = boxhost.create()
    port = listener.getsockname()[1]
    # neither a box that asks for it by its own address, nor one beyond the names, nor the machine itself
    out = box.python(f"""
import socket
for target in (("198.18.0.1", {port}), ("198.18.0.34", 80), ("198.18.0.0", 80)):
    s = socket.socket(); s.settimeout(5)
    try:
        s.connect(target); print("reached", s.recv(1))
    except ConnectionRefusedError: print("refused")
    except OSError as e: print(e)
""")
    assert "reached" not in out and "timed out" not in out, out
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("198.18.0.1", port), 5)
    listener.setblocking(False)
    with pytest.raises(BlockingIOError):
        listener.accept()
    listener.close()


def test_udp_to_a_name_goes_nowhere(boxhost):
    box = boxhost.create()
    out = box.python("""
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(5); s.connect(("198.18.0.2", 53)); s.send(b"x")
try: print(s.recv(10))
except OSError as e: print(type(e).__name__)
""")
    assert "timeout" not in out.lower() and "b'" not in out, out


def test_names_are_answered_to_their_box_alone(boxhost):
    one, two = boxhost.create(), boxhost.create()
    boxhost.call("names", box=one.id, names=["db", "front-end"])
    assert look_up(one, "db", "front-end", "FRONT-END") == ["198.18.0.2", "198.18.0.3", "198.18.0.3"]
    assert one.python(LOOK_UP + "print(ask('db', 28))").strip() == "rcode 0, empty"
    assert not look_up(two, "db")[0].startswith("198.18.")
    boxhost.call("names", box=one.id, names=["front-end"])
    assert look_up(one, "front-end") == ["198.18.0.2"]
    assert not look_up(one, "db")[0].startswith("198.18.")
    boxhost.call("names", box=one.id, names=[])
    assert not look_up(one, "front-end")[0].startswith("198.18.")


def test_names_come_back_with_the_forwarder(boxhost):
    box = boxhost.create()
    boxhost.call("names", box=box.id, names=["db"])
    forwarder = next(int(pid) for pid in os.listdir("/proc") if pid.isdigit() and _parent(pid) == boxhost.process.pid
                     and _uid(pid) == 65534)
    os.kill(forwarder, signal.SIGKILL)
    until(lambda: look_up(box, "db") == ["198.18.0.2"])


def _parent(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return int(stat.read().rsplit(")", 1)[1].split()[1])
    except OSError:
        return None


def _uid(pid):
    return os.stat(f"/proc/{pid}").st_uid if os.path.exists(f"/proc/{pid}") else None


def test_a_new_boxhost_gives_a_new_socket(boxhost):
    box = boxhost.create()
    old, _ = take_socket(boxhost)
    boxhost.restart()
    new, _ = take_socket(boxhost)
    box.ok("(/usr/bin/python3 -c \"import socket; socket.create_connection(('198.18.0.5', 7), 10)\" &) >/dev/null 2>&1")
    connection, peer = new.accept()
    assert peer[0] == box.address and original(connection) == ("198.18.0.5", 7)
    for each in (connection, new, old):
        each.close()


def test_two_instances_do_not_meet(boxhost_factory):
    hosts = [boxhost_factory(), boxhost_factory()]
    listeners = [take_socket(host)[0] for host in hosts]
    boxes = [host.create() for host in hosts]
    for host, name in zip(hosts, ("one", "two")):
        host.call("names", box=boxes[hosts.index(host)].id, names=[name])
    assert look_up(boxes[0], "one") == ["198.18.0.2"] and not look_up(boxes[0], "two")[0].startswith("198.18.")
    for box, listener in zip(boxes, listeners):
        box.ok("(/usr/bin/python3 -c \"import socket; socket.create_connection(('198.18.0.2', 7), 10)\" &) >/dev/null 2>&1")
        connection, peer = listener.accept()
        assert peer[0] == box.address
        connection.close()
    for listener in listeners:
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept()
        listener.close()


@pytest.mark.parametrize("names", [None, "db", {}, [7], [""], ["UPPER"], ["a.b"], ["-a"], ["1a"], ["a" * 64], ["a b"], ["n"] * 33])
def test_bad_names_are_refused(boxhost, names):
    box = boxhost.create()
    with pytest.raises(Refused) as refused:
        boxhost.call("names", box=box.id, names=names)
    assert refused.value.code == "EINVAL" and "names" in str(refused.value)
    with pytest.raises(Refused) as refused:
        boxhost.call("names", box="nosuchbox", names=["db"])
    assert refused.value.code == "ENOENT"


def test_nothing_is_passed_that_was_not_asked_for(boxhost):
    boxhost.create()
    number = boxhost.send("hello")
    raw, fds, _, _ = socket.recv_fds(boxhost.sock, 1 << 16, 4)
    assert json.loads(raw)["id"] == number and array.array("i", fds).tolist() == []
