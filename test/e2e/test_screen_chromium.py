"""Chromium on a box's screen with its own sandbox on, and what a box may not do all the same; xdotool."""

import json
import os

import pytest

from instance import until
from screen import picture, shot

PAGE = """<!doctype html><meta charset=utf-8><title>BOXPAGE</title>
<body style="margin:0;background:#224466"><input id=i autofocus style="width:600px;font:40px sans-serif">
<script>i.focus(); i.oninput = () => { document.title = 'TYPED ' + i.value }</script>"""

# A page that keeps its renderer, the compositor and shared memory busy: four full screens of canvas, redrawn all the time.
HEAVY = """<!doctype html><title>LOADING</title><body><script>
let frames = 0
for (let k = 0; k < 4; k++) {
  const c = document.createElement('canvas'); c.width = 1920; c.height = 1080; document.body.append(c)
  const g = c.getContext('2d')
  const draw = () => {
    for (let i = 0; i < 200; i++) {
      g.fillStyle = `hsl(${(frames * 7 + k * 90 + i) % 360},80%,50%)`
      g.fillRect(Math.random() * 1860, Math.random() * 1020, 60, 60)
    }
    if (++frames == 40) document.title = 'DREW'
    requestAnimationFrame(draw)
  }
  draw()
}
</script>"""

FLAGS = "--window-size=1280,800 --window-position=0,0"


@pytest.fixture(scope="module")
def one(server):
    client = server.client()
    name = client.start(size="medium")
    client.exec(name, "cat > page.html", stdin=PAGE)
    yield client, name
    client.stop(name)


@pytest.fixture
def browser(one):
    client, box = one
    job = client.exec(box, f"chromium {FLAGS} --remote-debugging-port=9222 file:///work/page.html >/tmp/c.log 2>&1",
                      background=True)["bgId"]
    try:
        assert client.exec(box, "timeout 60 xdotool search --sync --name BOXPAGE")["exitCode"] == 0
    except AssertionError:
        print(client.exec(box, "tail -20 /tmp/c.log"))
        raise
    yield job
    client.tool("sandbox_procs", {"id": box, "action": "stop", "bgId": job})


def out(one, cmd, **more):
    result = one[0].exec(one[1], cmd, **more)
    assert result["exitCode"] == 0, result
    return result["stdout"]


RENDERERS = """for p in $(pgrep -f -- '[-]-type=renderer'); do
  echo $(readlink /proc/$p/ns/user /proc/$p/ns/pid /proc/$p/ns/net) $(awk '/^CapEff|^Seccomp_filters/ {print $2}' /proc/$p/status)
done"""


def test_its_own_sandbox_is_on(one, browser):
    mine = out(one, "readlink /proc/self/ns/user /proc/self/ns/pid /proc/self/ns/net").split()
    browser_ns = out(one, "readlink /proc/$(pgrep -o -x chromium)/ns/user").strip()
    renderers = [line.split() for line in out(one, RENDERERS).splitlines()]
    assert renderers
    for user, pid, net, caps, filters in renderers:
        assert len({user, browser_ns, mine[0]}) == 3 and pid != mine[1] and net != mine[2]
        assert int(caps, 16) == 0 and int(filters) >= 3  # boxd's two, and the browser's own
    assert "--no-sandbox" not in out(one, "tr '\\0' ' ' < /proc/$(pgrep -o -x chromium)/cmdline")


def test_the_page_is_on_the_screen(one, browser):
    def painted():
        _, image = shot(*one)
        return image if image.near(640, 600, (0x22, 0x44, 0x66), 2) else None
    assert until(painted).near(1200, 780, (0x22, 0x44, 0x66), 2)


def test_xdotool_types_into_the_page(one, browser):
    out(one, "xdotool mousemove 200 110 click 1; xdotool type --delay 20 'Hello, box 42'")
    assert "TYPED Hello, box 42" in out(one, "timeout 20 xdotool search --sync --name 'TYPED Hello, box 42' getwindowname")


def test_xdotool_types_into_an_x_program(one):
    out(one, "rm -f /tmp/typed; nohup xterm -geometry 60x10+50+50 >/dev/null 2>&1 & "
             "w=$(timeout 20 xdotool search --sync --onlyvisible --class xterm | tail -1); xdotool mousemove --sync 150 120; "
             "xdotool windowfocus --sync $w; sleep 0.5; xdotool type 'echo it was typed > /tmp/typed'; xdotool key Return")
    assert until(lambda: one[0].exec(one[1], "cat /tmp/typed")["stdout"]) == "it was typed\n"
    out(one, "pkill xterm")


def test_it_belongs_to_its_job(one, browser):
    client, box = one
    job = [j for j in client.tool("sandbox_procs", {"id": box, "action": "list"})["procs"] if j["bgId"] == browser][0]
    assert job["running"] and job["processes"] > 5
    client.tool("sandbox_procs", {"id": box, "action": "stop", "bgId": browser})
    assert client.exec(box, "pgrep -f /usr/lib/chromium")["exitCode"] == 1  # all gone when stop has answered


def test_a_timeout_ends_it_too(one):
    client, box = one
    result = client.exec(box, "chromium --headless --remote-debugging-port=9333 about:blank 2>/dev/null", timeoutSec=4)
    assert result["timedOut"]
    assert client.exec(box, "pgrep -f /usr/lib/chromium")["exitCode"] == 1


def test_headless_output_files_and_exit_codes_are_the_callers(one):
    assert "<p>dumped</p>" in out(one, "chromium --headless --dump-dom 'data:text/html,<p>dumped</p>' 2>/dev/null")
    out(one, "mkdir -p shots && cd shots && chromium --headless --screenshot=here.png file:///work/page.html 2>/dev/null")
    assert out(one, "stat -c '%U %s' shots/here.png").split()[0] == "root"
    assert "done" in out(one, "chromium --no-sandbox --headless --dump-dom 'data:text/html,done' 2>/dev/null")


# ------------------------------------------------------------------ the launcher

LAUNCH = "/run/boxd/launch"


def test_launch_is_transparent(one):
    client, box = one
    assert client.exec(box, f"{LAUNCH} sh -c 'exit 7'")["exitCode"] == 7
    assert client.exec(box, f"{LAUNCH} nosuchprogram")["exitCode"] == 127
    assert client.exec(box, f"{LAUNCH} /work/page.html")["exitCode"] == 126
    assert client.exec(box, f"{LAUNCH} sh -c 'kill -SEGV $$'; echo $?")["stdout"].strip().endswith("139")
    assert out(one, f"mkdir -p d; cd d; X='a  b' {LAUNCH} sh -c 'pwd; echo \"$X|$1|$2\"; cat; echo err >&2' - \"\" 'c d' 2>/dev/null",
               stdin="in\n") == "/work/d\na  b||c d\nin\n"
    # Bytes are bytes.
    assert out(one, f"{LAUNCH} printf '%s' $'\\xff\\xfe' | od -An -tx1").split() == ["ff", "fe"]
    # A signal to the client reaches the program; killing the client ends it.
    assert "got it" in client.exec(box, f"{LAUNCH} sh -c 'trap \"echo got it; exit 3\" TERM; while :; do sleep 0.1; done' & "
                                        "sleep 0.5; kill $!; wait $!; echo $?")["stdout"]
    client.exec(box, f"{LAUNCH} sleep 4711 & sleep 0.5; kill -9 $!")
    assert until(lambda: client.exec(box, "pgrep -f 'sleep 4711'")["exitCode"] == 1)


REFUSED = r"""
import ctypes, errno, fcntl, os, socket, struct
libc = ctypes.CDLL(None, use_errno=True)
def refused(name, number, *args):
    pid = os.fork()
    if pid == 0:
        r = libc.syscall(number, *args)
        if r == 0 and number == 56: os._exit(99)
        print(name, "allowed" if r >= 0 else errno.errorcode[ctypes.get_errno()], flush=True)
        os._exit(0)
    os.waitpid(pid, 0)
def attempt(name, fn):
    try:
        fn(); print(name, "allowed")
    except OSError as e:
        print(name, errno.errorcode[e.errno])
NEWNS, NEWCG, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET = 0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000
for name, flags in (("user", NEWUSER), ("mount", NEWNS), ("net", NEWNET), ("pid", NEWPID), ("uts", NEWUTS), ("ipc", NEWIPC),
                    ("cgroup", NEWCG), ("user-mount", NEWUSER | NEWNS), ("sandbox", NEWUSER | NEWPID | NEWNET)):
    refused("unshare-" + name, 272, flags)
    refused("clone-" + name, 56, flags | 17, 0, 0, 0, 0)
b = ctypes.create_string_buffer(256)
refused("mount", 165, b"t", b"/mnt", b"tmpfs", 0, None)
refused("umount", 166, b"/dev/shm", 2)
refused("pivot_root", 155, b"/", b"/")
refused("fsopen", 430, b"tmpfs", 0)
refused("open_tree", 428, -100, b"/", 1)
refused("setns", 308, 0, 0)
refused("bpf", 321, 0, b, 128)
refused("keyctl", 250, 0, -3, 0)
refused("io_uring", 425, 8, b)
refused("clone3", 435, b, 88)
for name, family in (("packet", 17), ("vsock", 40), ("alg", 38)):
    attempt(name, lambda: socket.socket(family, socket.SOCK_RAW))
for name, protocol in (("route", 0), ("netfilter", 12), ("xfrm", 6), ("generic", 16)):
    attempt("netlink-" + name, lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol))
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
ifr = struct.pack("16sH14x", b"lo", 0)
attempt("SIOCSIFFLAGS", lambda: fcntl.ioctl(s, 0x8914, ifr))
attempt("SIOCBRADDBR", lambda: fcntl.ioctl(s, 0x89a0, b"br0\0" + bytes(12)))
attempt("SIOCADDTUNNEL", lambda: fcntl.ioctl(s, 0x89f1, ifr + bytes(64)))
attempt("iptables", lambda: s.setsockopt(0, 64, bytes(128)))
attempt("ip6tables", lambda: s.setsockopt(41, 64, bytes(128)))
attempt("xfrm-policy", lambda: s.setsockopt(0, 17, bytes(200)))
print("caps", [l.split()[1] for l in open("/proc/self/status") if l.startswith("CapEff")][0])
"""

SPACES = "user mount net pid uts ipc cgroup user-mount sandbox".split()
ALWAYS_REFUSED = {**{n: "EPERM" for n in "mount umount pivot_root fsopen open_tree setns bpf keyctl".split()},
                  "io_uring": "ENOSYS", "clone3": "ENOSYS",
                  **{n: "EAFNOSUPPORT" for n in "packet vsock alg".split()}}


def results(one, prefix=""):
    one[0].exec(one[1], "cat > refused.py", stdin=REFUSED)
    text = out(one, f"{prefix} /usr/bin/python3 /work/refused.py")
    return dict(line.split(" ", 1) for line in text.splitlines())


x86_only = pytest.mark.skipif(os.uname().machine != "x86_64", reason="the numbers are those of x86-64")


@x86_only
def test_a_command_gets_no_namespace_at_all(one):
    found = results(one)
    for space in SPACES:
        assert found[f"unshare-{space}"] == "EPERM" and found[f"clone-{space}"] == "EPERM", space
    for name, why in ALWAYS_REFUSED.items():
        assert found[name] == why, name
    assert found["netlink-route"] == "allowed"  # what `ip` and getifaddrs need stays


@x86_only
def test_what_is_launched_gets_a_sandbox_and_no_networks(one):
    found = results(one, LAUNCH)
    assert found["caps"] == "0000000000000000"
    for space in SPACES:
        assert found[f"unshare-{space}"] == ("allowed" if space == "user" else "EPERM"), space
    for name in ("clone-user", "clone-sandbox"):
        assert found[name] == "allowed"
    for space in "mount net uts ipc cgroup user-mount".split():
        assert found[f"clone-{space}"] == "EPERM"
    for name, why in ALWAYS_REFUSED.items():
        assert found[name] == why, name
    assert {found[f"netlink-{n}"] for n in "route netfilter xfrm generic".split()} == {"EAFNOSUPPORT"}
    assert {found[n] for n in "SIOCSIFFLAGS SIOCBRADDBR SIOCADDTUNNEL iptables ip6tables xfrm-policy".split()} == {"EPERM"}


INSIDE_ITS_OWN = r"""
import ctypes, errno, os, runpy, sys
libc = ctypes.CDLL(None, use_errno=True)
pid = libc.syscall(56, 0x10000000 | 0x20000000 | 0x40000000 | 17, 0, 0, 0, 0)
if pid == 0:
    runpy.run_path("/work/refused.py")
    sys.stdout.flush()
    os._exit(0)
os.waitpid(pid, 0)
"""


@x86_only
def test_all_capabilities_in_a_nested_namespace_reach_nothing(one):
    """Root of a user and network namespace of its own: the worst that a renderer's escape or a hostile box can be."""
    results(one)
    one[0].exec(one[1], "cat > inside.py", stdin=INSIDE_ITS_OWN)
    found = dict(line.split(" ", 1) for line in out(one, f"{LAUNCH} /usr/bin/python3 /work/inside.py").splitlines())
    assert int(found["caps"], 16) > 1 << 37  # every one, in its own namespace
    for name, why in ALWAYS_REFUSED.items():
        assert found[name] == why, name
    assert {found[f"netlink-{n}"] for n in "route netfilter xfrm generic".split()} == {"EAFNOSUPPORT"}
    assert {found[n] for n in "SIOCSIFFLAGS SIOCBRADDBR SIOCADDTUNNEL iptables ip6tables xfrm-policy".split()} == {"EPERM"}
    assert {found[f"unshare-{s}"] for s in "mount net pid uts ipc cgroup user-mount".split()} == {"EPERM"}


def test_namespaces_are_limited_in_number(one):
    many = out(one, f"{LAUNCH} /usr/bin/python3 -c '\n"
                    "import ctypes, os, time\n"
                    "libc = ctypes.CDLL(None, use_errno=True)\n"
                    "made = 0\n"
                    "for i in range(100):\n"
                    "    pid = libc.syscall(56, 0x70000000 | 17, 0, 0, 0, 0)\n"
                    "    if pid == 0: time.sleep(30); os._exit(0)\n"
                    "    made += pid > 0\n"
                    "print(made)\n'; pkill -9 python3; true")
    assert 1 <= int(many.split()[0]) <= 32


# ------------------------------------------------------------------ a heavy load

def test_fifty_heavy_tabs(server):
    client = server.client()
    box = client.start(size="large")
    try:
        client.exec(box, "cat > heavy.html", stdin=HEAVY)
        client.exec(box, f"chromium {FLAGS} --remote-debugging-port=9222 $(seq -f 'file:///work/heavy.html?%g' 50) >/tmp/c.log 2>&1",
                    background=True)
        tabs = "curl -s localhost:9222/json/list"

        def pages():
            text = client.exec(box, tabs)["stdout"]
            return [t for t in json.loads(text or "[]") if t["type"] == "page" and "heavy" in t["url"]]
        until(lambda: len(pages()) == 50, 120)
        # Each comes to the front and draws until it has drawn enough.
        for page in pages():
            client.exec(box, f"curl -s localhost:9222/json/activate/{page['id']}")
            until(lambda: [t for t in pages() if t["id"] == page["id"]][0]["title"] == "DREW", 60)
        assert len(pages()) == 50 and all(t["title"] == "DREW" for t in pages())
        log = client.exec(box, "cat /tmp/c.log")["stdout"]
        assert "No space left" not in log and "Creating shared memory" not in log and "crash" not in log.lower()
        assert int(client.exec(box, "pgrep -fc -- '[-]-type=renderer'")["stdout"]) >= 50
        assert client.tool("sandbox_status", {"id": box})["resources"]["oomKills"] == 0
        assert picture(client.tool("sandbox_shot", {"id": box})).width == 1280
    finally:
        client.stop(box)
