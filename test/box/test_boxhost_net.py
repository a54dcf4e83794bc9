"""What a box can reach. The machine's network is played by namespaces made here: a host with a service on every kind of
address, and an outside with a public and a private address. Nothing leaves the machine."""

import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from conftest import GIB, until

PUBLIC, PRIVATE, HOST, OUTSIDE, RESOLVER = "203.0.113.10", "10.99.0.1", "192.0.2.1", "192.0.2.2", "127.0.0.77"
SMALL = {"cpus": 1, "memoryBytes": 256 << 20, "pids": 64, "diskBytes": GIB}

# Answers "here" on every TCP port given, and says what it sees of the peer.
SERVICE = """
import socket, sys, threading
def serve(port):
    s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); s.bind(("0.0.0.0", port)); s.listen(64)
    while True:
        c, peer = s.accept(); c.sendall(("here " + peer[0]).encode()); c.close()
for p in sys.argv[1:]: threading.Thread(target=serve, args=(int(p),)).start()
"""

# A resolver: every A question is answered with the public address; big.* is truncated over UDP; slow.* never answers.
NAMES = """
import socket, struct, sys, threading
address, public = sys.argv[1], socket.inet_aton(sys.argv[2])
def answer(q, tcp):
    name = q[12:].split(b"\\0")[0]
    if b"slow" in name: return None
    end = q.index(b"\\0", 12) + 5
    if b"big" in name and not tcp: return q[:2] + b"\\x83\\x80" + q[4:6] + b"\\0" * 6 + q[12:end]
    return q[:2] + b"\\x81\\x80" + b"\\0\\1\\0\\1\\0\\0\\0\\0" + q[12:end] + b"\\xc0\\x0c\\0\\1\\0\\1\\0\\0\\0\\1\\0\\4" + public
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.bind((address, 53))
t = socket.socket(); t.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); t.bind((address, 53)); t.listen(64)
def tcp():
    while True:
        c, _ = t.accept(); n = c.recv(2)
        a = answer(c.recv(struct.unpack(">H", n)[0]), True)
        if a: c.sendall(struct.pack(">H", len(a)) + a)
        c.close()
threading.Thread(target=tcp).start()
while True:
    q, peer = u.recvfrom(4096)
    a = answer(q, False)
    if a: u.sendto(a, peer)
"""

CONNECT = """
import socket, time
for target in {targets!r}:
    s = socket.socket(); s.settimeout(5); begin = time.monotonic()
    try:
        s.connect(tuple(target)); got = s.recv(100).decode()
    except OSError as e:
        got = "refused" if time.monotonic() - begin < 2 else "timeout"
    print(target[0], target[1], got)
"""

ASK = """
import socket, struct, os, sys
def ask(name, kind=1):
    q = os.urandom(2) + b"\\1\\0\\0\\1\\0\\0\\0\\0\\0\\0" + b"".join(bytes([len(p)]) + p.encode() for p in name.split(".")) + b"\\0" + struct.pack(">HH", kind, 1)
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout({timeout}); s.sendto(q, ("198.18.0.1", 53))
    try:
        a = s.recv(4096)
    except OSError:
        return "timeout"
    assert a[:2] == q[:2]
    return ["ok", "rcode%d" % (a[3] & 15)][(a[3] & 15) != 0] + (" cut" if a[2] & 2 else "")
"""


class Network:
    """Two network namespaces joined by a cable, with services in them."""

    def __init__(self):
        tag = f"{os.getpid():x}{random.randrange(1 << 16):04x}"
        self.host, self.outside, self.children = f"psbt-h-{tag}", f"psbt-o-{tag}", []
        for name in (self.host, self.outside):
            self.run("ip", "netns", "add", name)
            self.inside(name, "ip", "link", "set", "lo", "up")
        self.run("ip", "-n", self.host, "link", "add", "up0", "type", "veth", "peer", "name", "up0", "netns", self.outside)
        for name, address in ((self.host, HOST), (self.outside, OUTSIDE)):
            self.inside(name, "ip", "addr", "add", f"{address}/24", "dev", "up0")
            self.inside(name, "ip", "link", "set", "up0", "up")
        self.inside(self.host, "ip", "route", "add", "default", "via", OUTSIDE)
        self.inside(self.host, "sh", "-c", "echo 0 > /proc/sys/net/ipv4/ip_forward")  # a new namespace takes the machine's value
        for address in (PUBLIC, PRIVATE):
            self.inside(self.outside, "ip", "addr", "add", f"{address}/32", "dev", "lo")
        self.serve(self.host, SERVICE, "80", "8080")
        self.serve(self.outside, SERVICE, "80", "53")
        self.serve(self.host, NAMES, RESOLVER, PUBLIC)
        until(lambda: "*:8080" in self.listening(self.host) or "0.0.0.0:8080" in self.listening(self.host))
        until(lambda: f"{RESOLVER}:53" in self.listening(self.host))

    @staticmethod
    def run(*argv):
        return subprocess.run(argv, check=True, capture_output=True, text=True).stdout

    def inside(self, name, *argv):
        return self.run("ip", "netns", "exec", name, *argv)

    def listening(self, name):
        return self.inside(name, "ss", "-Hltn")

    def serve(self, name, text, *args):
        self.children.append(subprocess.Popen(["ip", "netns", "exec", name, sys.executable, "-c", text, *args]))

    @property
    def prefix(self):
        return ["nsenter", f"--net=/run/netns/{self.host}"]

    def close(self):
        for child in self.children:
            child.kill()
            child.wait()
        for name in (self.host, self.outside):
            subprocess.run(["ip", "netns", "del", name], check=False)


@pytest.fixture(scope="module")
def network(needs_root):
    if not all(map(shutil.which, ("ip", "nsenter", "nft", "ss"))):
        pytest.skip("ip, ss, nsenter or nft is not installed")
    net = Network()
    yield net
    net.close()


def connect(box, *targets):
    lines = box.python(CONNECT.format(targets=[list(t) for t in targets])).strip().splitlines()
    return [line.split(" ", 2)[2] for line in lines]


@pytest.fixture
def host(network, boxhost_factory):
    host = boxhost_factory(prefix=network.prefix, extra=["--resolver", RESOLVER])
    if not host.call("hello")["features"]["net"]:
        pytest.skip("no network for boxes on this machine")
    return host


def test_who_is_reachable(host):
    box, other = host.create(size=SMALL), host.create(size=SMALL)
    other.ok("(python3 -m http.server 80 >/dev/null 2>&1 &) ; sleep 0.5")
    got = connect(box, (PUBLIC, 80), (PRIVATE, 80), (HOST, 80), (HOST, 8080), ("198.18.0.1", 80), ("198.18.0.1", 8080),
                  ("127.0.0.1", 80), (RESOLVER, 53), ("169.254.169.254", 80), ("192.168.1.1", 80), ("172.17.0.1", 80),
                  ("100.64.0.1", 80), ("224.0.0.1", 80), (other.address, 80))
    assert got[0] == f"here {HOST}"  # the machine's own address: boxes are behind it
    assert got[1:] == ["refused"] * 13
    port = (host.state / "boxhost" / "dns.port").read_text()
    assert connect(box, ("198.18.0.1", int(port))) == ["refused"]


def test_forged_sources_and_ipv6_are_dropped(host, network):
    box, other = host.create(size=SMALL), host.create(size=SMALL)
    text = f"""
import socket, struct
def packet(src, dst):
    h = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 28, 1, 0, 64, 17, 0, socket.inet_aton(src), socket.inet_aton(dst))
    return h + struct.pack(">HHHH", 4000, 9999, 8, 0)
s = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
for src in ("{other.address}", "{PRIVATE}", "127.0.0.1", "{box.address}"):
    for _ in range(5): s.sendto(packet(src, "{PUBLIC}"), ("{PUBLIC}", 0))
"""
    seen = subprocess.Popen(["ip", "netns", "exec", network.outside, sys.executable, "-c", """
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_UDP); s.settimeout(4)
print("ready", flush=True)
n = 0
try:
    while True:
        p = s.recv(100)
        if p[22:24] == bytes([39, 15]): n += 1
except OSError: print(n, flush=True)
"""], stdout=subprocess.PIPE, text=True)
    assert seen.stdout.readline() == "ready\n"
    box.python(text)
    assert int(seen.communicate(timeout=30)[0]) == 5  # only those with the box's own address
    assert "inet6" not in box.ok("cat /proc/net/if_inet6 | grep eth0 || true")


def test_extra_networks_can_be_opened(network, boxhost_factory):
    host = boxhost_factory(prefix=network.prefix, extra=["--resolver", RESOLVER, "--allow-net", f"{PRIVATE}/32"])
    assert connect(host.create(size=SMALL), (PRIVATE, 80), ("10.99.0.2", 80)) == [f"here {HOST}", "refused"]


def test_names(host):
    box = host.create(size=SMALL)
    assert PUBLIC in box.ok("getent hosts some.name.example")
    got = box.python(ASK.format(timeout=5) + "print(ask('a.example'), ask('big.example'), sep='|')").strip()
    assert got == "ok|ok cut"
    assert PUBLIC in box.ok("getent ahostsv4 big.example")  # libc asks again over TCP
    # garbage is ignored and does no harm
    box.python("import socket, os\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
               "for n in range(300): s.sendto(os.urandom(n % 60), ('198.18.0.1', 53))")
    assert PUBLIC in box.ok("getent hosts again.example")


def test_unanswered_questions_do_not_pile_up(host):
    flooder, other = host.create(size=SMALL), host.create(size=SMALL)
    flooder.python(ASK.format(timeout=0.001) + "for n in range(400): ask('slow%d.example' % n)")
    assert PUBLIC in other.ok("getent hosts other.example")
    assert flooder.python(ASK.format(timeout=9) + "print(ask('slow.example'))").strip() in ("rcode2", "timeout")


def test_resolver_of_the_machine_on_loopback_and_changed_later(network, boxhost_factory, tmp_path):
    conf = tmp_path / "resolv.conf"
    conf.write_text("nameserver 127.0.0.78\noptions edns0\n")  # nobody there
    os.chmod(tmp_path, 0o755)
    prefix = [*network.prefix, "unshare", "-m", "sh", "-c", f'mount --bind {conf} /etc/resolv.conf && exec "$@"', "sh"]
    host = boxhost_factory(prefix=prefix)
    box = host.create(size=SMALL)
    begin = time.monotonic()
    assert box.sh("getent hosts early.example")[1] != 0
    assert time.monotonic() - begin < 30
    conf.write_text(f"# changed\nnameserver {RESOLVER}\n")
    until(lambda: PUBLIC in box.sh("getent hosts late.example")[0])


def status_of(pid):
    try:
        return Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return ""  # ended meanwhile


def test_forwarder_has_no_privileges_and_comes_back(host):
    box = host.create(size=SMALL)
    children = subprocess.run(["pgrep", "-P", str(host.process.pid)], capture_output=True, text=True).stdout.split()
    statuses = {pid: text for pid in children if "\nUid:\t65534\t" in (text := status_of(pid))}  # others prepare disks
    assert len(statuses) == 1
    (pid, status), = statuses.items()
    assert "CapEff:\t0000000000000000" in status and "CapPrm:\t0000000000000000" in status
    assert "NoNewPrivs:\t1" in status and "Seccomp:\t2" in status and "Groups:\t \n" in status
    os.kill(int(pid), 9)
    until(lambda: PUBLIC in box.sh("getent hosts back.example")[0])


def test_two_instances_answer_their_own_boxes(network, host, boxhost_factory):
    second = boxhost_factory(prefix=network.prefix, extra=["--resolver", RESOLVER])
    a, b = host.create(size=SMALL), second.create(size=SMALL)
    b.ok("(python3 -m http.server 80 >/dev/null 2>&1 &) ; sleep 0.5")
    assert connect(a, (b.address, 80)) == ["refused"]
    host.kill()  # its forwarder ends with it
    assert PUBLIC in b.ok("getent hosts b.example")
    host.start()
    until(lambda: PUBLIC in a.sh("getent hosts a.example")[0])
    host.cleanup()
    assert connect(b, (PUBLIC, 80), (PRIVATE, 80)) == [f"here {HOST}", "refused"]
    forward = network.inside(network.host, "cat", "/proc/sys/net/ipv4/ip_forward").strip()
    assert forward == "1"
    second.cleanup()
    assert network.inside(network.host, "cat", "/proc/sys/net/ipv4/ip_forward").strip() == "0"
    assert "psbx" not in network.inside(network.host, "nft", "list", "tables")
