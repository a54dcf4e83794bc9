"""`parallelsandbox image`: a real image from this machine's own mirror, with a short list of packages, and boxes of it beside
boxes of `host`. The full recipe differs in its list alone."""

import json
import os
import re
import shutil
import signal
import subprocess
import threading
from pathlib import Path

import pytest
from instance import TOP, Instance, programs, until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="boxes are made by root, and this run is not root")

WORK = "# what the tests below run\nca-certificates\ngit\ngcc\nlibc6-dev\nnodejs\npython3\nprocps\n"
CANARY = "canary-9f31c2"


# In a mount namespace whose /etc/apt has secrets in it that this machine does not have.
SECRETS = f"""
mount -t tmpfs none /media && mkdir /media/upper /media/work
mount -t overlay none -o lowerdir=/etc/apt,upperdir=/media/upper,workdir=/media/work /etc/apt
mkdir -p /etc/apt/auth.conf.d
echo 'machine nowhere.test login canary password {CANARY}' >/etc/apt/auth.conf.d/canary.conf
cp /etc/apt/auth.conf.d/canary.conf /etc/apt/auth.conf
echo 'Acquire::http::Proxy::nowhere.test "http://canary:{CANARY}@proxy.test:3128";' >/etc/apt/apt.conf.d/99canary
exec "$@"
"""


def image(state, *words, env=None, within=()):
    return subprocess.run([*within, str(programs() / "parallelsandbox"), "image", *map(str, words), "--state", str(state)], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=900, check=False, env=dict(os.environ, **(env or {})))


def built(state, *words, **more):
    """A build that succeeds; without the mirror there is nothing to test here."""
    done = image(state, "build", "debian", "--json", *words, **more)
    if done.returncode != 0 and "cannot be reached" in done.stderr:
        pytest.skip(f"this machine's Debian mirror cannot be reached: {done.stderr.strip()[:300]}")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


class World:
    """One server, a box of `host` from before, and the image `work`, built while the server ran."""

    def __init__(self, folder):
        self.list = folder / "list"
        self.list.write_text(WORK)
        self.empty = folder / "empty"
        self.empty.write_text("")
        self.server = Instance(warm=2).start()  # boxes that stand ready follow the default
        self.state = self.server.state
        self.client = self.server.client()
        self.before = self.client.tool("sandbox_start", {"goal": "there before the image"})
        self.client.exec(self.before["id"], "sleep 600 & echo $! >/work/pid")
        self.built, self.said = built(self.state, "--name", "work", "--packages", self.list, env={"no_proxy": f"nowhere.test,{CANARY}"},
                                      within=("unshare", "-m", "bash", "-euo", "pipefail", "-c", SECRETS, "bash"))

    @property
    def images(self):
        return self.state / "boxhost" / "images"

    def versions(self, name="work"):
        return {path.name for path in (self.images / name).glob("v-*")}

    def listed(self):
        return {row["name"]: row for row in json.loads(image(self.state, "list", "--json").stdout)}


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    made = None
    try:
        made = World(tmp_path_factory.mktemp("image"))
        yield made
        left = made.server.finish()
        assert not left, "left behind:\n" + "\n".join(left)
    finally:
        if made:
            made.server.sweep()


@pytest.fixture(scope="module")
def work(world):
    """A box of the image, by its being the default."""
    return world.client.tool("sandbox_start", {"goal": "a box of the new image"})


@pytest.mark.parametrize("words, code, says", [
    ((), 2, "usage"), (("build",), 2, "usage"), (("explode",), 2, "usage"), (("list", "x"), 2, "usage"), (("rm",), 2, "usage"),
    (("list", "--name", "x"), 2, "usage"), (("build", "debian", "--nope"), 2, "usage"), (("build", "nothere"), 1, "debian"),
    (("build", "debian", "--name", "../x"), 1, "no name for an image"), (("build", "debian", "--name", "host"), 1, "host"),
    (("build", "debian", "--packages", "/nowhere/list"), 1, "/nowhere/list"), (("rm", "debian"), 1, "there are: host"),
    (("rm", "host"), 1, "stays"), (("default", "debian"), 1, "there are: host"),
])
def test_refusals(tmp_path, words, code, says):
    done = image(tmp_path / "state", *words)
    assert done.returncode == code and says in done.stderr and done.stdout == "", done
    assert code == 1 or not (tmp_path / "state").exists(), "wrong usage makes nothing"


def test_bad_list(tmp_path):
    (tmp_path / "list").write_text("git\n?essential\n")
    done = image(tmp_path / "state", "build", "debian", "--packages", tmp_path / "list")
    assert done.returncode == 1 and "line 2" in done.stderr and "?essential" in done.stderr
    assert not list((tmp_path / "state" / "boxhost" / "images").glob(".build-*"))


def test_too_little_room_is_told_before_anything_is_fetched(tmp_path):
    (tmp_path / "list").write_text("%disk 1048576\n")
    done = image(tmp_path / "state", "build", "debian", "--packages", tmp_path / "list")
    assert done.returncode == 1 and re.search(r"takes 1048576 MiB .* \d+ MiB are free", done.stderr)
    assert "reading the package lists" not in done.stderr


def test_without_mmdebstrap_the_package_is_named(tmp_path):
    """In a mount namespace where the program is covered by a file that nobody may execute."""
    (tmp_path / "cover").write_text("")
    (tmp_path / "cover").chmod(0o644)
    covered = ("for p in /usr/bin /usr/local/bin; do "
               f"[ ! -e $p/mmdebstrap ] || mount --bind {tmp_path}/cover $p/mmdebstrap; done; ")
    done = subprocess.run(["unshare", "-m", "bash", "-c", covered + f"exec {programs()}/parallelsandbox image build debian --state {tmp_path}/state"],
                          capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1 and "apt-get install mmdebstrap" in done.stderr


def test_built(world):
    assert world.built["name"] == "work" and world.built["default"] is True and world.built["packages"] > 80
    assert world.built["release"] in ("bookworm", "trixie") and world.built["bytes"] > 100 << 20
    for words in ("looking at the sources", "reading the package lists", " packages (", "keeping the image"):
        assert words in world.said, world.said
    row = world.listed()["work"]
    assert row["default"] is True and row["packages"] == world.built["packages"] and row["oldVersions"] == 0
    assert re.search(r"^work +default ", image(world.state, "list").stdout, re.M)
    until(lambda: re.search(r"^host +1 box ", image(world.state, "list").stdout, re.M))  # those that stood ready are gone
    version, = world.versions()
    # programs with the setuid bit lie below: nobody else on the machine may get there
    assert (world.images / "work" / version).stat().st_mode & 0o777 == 0o700
    assert not [path.name for path in world.images.iterdir() if path.name.startswith((".build-", ".gone-")) or path.name.endswith(".log")]


def test_the_default_at_once_and_the_others_go_on(world, work):
    assert work["image"] == "work"
    assert world.client.tool("sandbox_status", {"id": work["id"]})["image"] == "work"
    assert {row["id"]: row["image"] for row in world.client.tool("sandbox_list", {})["boxes"]}[work["id"]] == "work"
    system = world.client.exec(work["id"], ". /etc/os-release; echo $ID $VERSION_CODENAME; id -u; pwd; hostname")["stdout"].split()
    assert system == ["debian", world.built["release"], "0", "/work", work["id"]]
    assert world.before["image"] == "host"
    assert world.client.exec(world.before["id"], "kill -0 $(cat /work/pid) && echo alive")["stdout"] == "alive\n"
    host = world.client.tool("sandbox_start", {"goal": "side by side", "image": "host"})
    assert host["image"] == "host"
    packages = "dpkg-query -W | wc -l"
    assert int(world.client.exec(work["id"], packages)["stdout"]) == world.built["packages"]
    assert int(world.client.exec(host["id"], packages)["stdout"]) != world.built["packages"]
    world.client.tool("sandbox_stop", {"id": host["id"]})


def test_an_unknown_image_is_refused_by_name(world):
    refused = world.client.tool("sandbox_start", {"goal": "g", "image": "nothere"})
    assert refused.is_error
    for words in ("`image`", "nothere", "host, work", '"work" is the default', "nothing was started"):
        assert words in refused.text


PYTHON = "python3 - <<'EOF'\nimport json, ssl, sqlite3, subprocess\nprint(json.dumps({'a': subprocess.run(['true']).returncode}))\nEOF"


@pytest.mark.parametrize("command, code, output", [
    ("echo out; echo err >&2; exit 7", 7, "out\n"),
    ("nothere", 127, ""), ("/etc/passwd", 126, ""), ("kill -9 $$", 137, ""),
    ("cat /dev/stdin | wc -c", 0, "0\n"),
    ("node -e 'console.log(JSON.stringify({a: [1, 2].map(x => x * 2)}))'", 0, '{"a":[2,4]}\n'),
    (PYTHON, 0, '{"a": 0}\n'),
    ("cd /tmp && printf '#include <stdio.h>\\nint main(void) { puts(\"made here\"); return 3; }\\n' >a.c && gcc -O2 -Wall a.c -o a && ./a", 3, "made here\n"),
    ("cd /tmp && git init -q r && cd r && echo x >f && git add f && git -c user.name=t -c user.email=t@localhost commit -q -m first "
     "&& git log --format=%s && git clone -q . ../copy && cat ../copy/f", 0, "first\nx\n"),
    ("apt-get --version | head -n 1 | cut -c 1-4; dpkg -l git | tail -n 1 | cut -c 1-2", 0, "apt \nii\n"),
    ("getent hosts localhost | cut -d' ' -f1; getent hosts $(hostname)", 0, None),
    ("ps -e | wc -l", 0, None), ("test -w /usr/bin && touch /usr/bin/new && ls /usr/bin/new", 0, "/usr/bin/new\n"),
    ("mount -t tmpfs x /mnt", 32, ""), ("ls /dev | tr '\\n' ' '", 0, None),
])
def test_commands(world, work, command, code, output):
    result = world.client.exec(work["id"], command)
    assert result["exitCode"] == code, (result["stdout"], result["stderr"])
    if output is not None:
        assert result["stdout"] == output


def test_a_package_is_installed_in_the_box(world, work):
    script = ("set -e; cd /tmp; mkdir -p d/DEBIAN d/usr/bin; printf 'Package: mine\\nVersion: 1\\nArchitecture: all\\nMaintainer: t <t@localhost>\\n"
              "Description: x\\n' >d/DEBIAN/control; printf '#!/bin/sh\\necho mine works\\n' >d/usr/bin/mine; chmod 755 d/usr/bin/mine; "
              "dpkg-deb -b d mine.deb >/dev/null; apt-get install -y ./mine.deb >/dev/null 2>&1; mine; dpkg-query -W mine; apt-get remove -y mine >/dev/null 2>&1; "
              "hash -r; ! command -v mine")
    result = world.client.exec(work["id"], script)
    assert (result["exitCode"], result["stdout"]) == (0, "mine works\nmine\t1\n"), result["stderr"]


def test_files_in_and_out(world, work, repository):
    from mcpclient import StdioMcp
    with StdioMcp([str(programs() / "parallelsandbox-mcp")], env=world.server.adapter_env(), cwd=str(repository)) as adapter:
        adapter.initialize()
        synced = adapter.tool("sandbox_sync", {"id": work["id"], "localPath": str(repository), "dest": "repo"})
        assert not synced.is_error, synced.text
    result = world.client.exec(work["id"], "sh repo/src/hello.sh && git -C repo status --porcelain 2>/dev/null | wc -l; ls repo/src | wc -l")
    assert result["stdout"].splitlines()[0] == "hello from the repository"
    link = world.client.tool("sandbox_get", {"id": work["id"], "path": "repo"})
    assert link["bytes"] > 0 and link["archive"]


def test_nothing_of_the_machine_is_in_it(world, work):
    look = (f"grep -rlsF {CANARY} /etc /root /home /var /opt /srv /tmp; ls -A /etc/apt/auth.conf.d /root /home; ls /etc/apt/auth.conf; "
            "ls /etc/apt/apt.conf.d | grep mmdebstrap; grep -E '^[^:]*:[^:]*:[1-9][0-9]{3}:' /etc/passwd; "
            "grep -c '://[^/ ]*@' /etc/apt/sources.list; ls /var/lib/apt/lists")
    lines = [line for line in world.client.exec(work["id"], look)["stdout"].splitlines()
             if line.strip() and not re.match(r"(/etc/apt/auth.conf.d|/root|/home):|\.(bashrc|profile)$|lock$|partial$|auxfiles$|0$", line)]
    assert lines == []
    assert not (world.images / "work" / "current" / "rootfs" / "etc" / "machine-id").read_text(), "every box has one of its own"
    assert world.client.exec(work["id"], "cat /etc/apt/apt.conf.d/90box")["stdout"].startswith("APT::Sandbox::User")


def test_what_the_last_step_takes_away(tmp_path):
    """The recipe's own script on a folder with every secret that `setup` may have lent it."""
    here, root = tmp_path / "here", tmp_path / "root"
    for folder in (here, root / "etc/apt/auth.conf.d", root / "etc/apt/apt.conf.d", root / "etc/ssl/certs"):
        folder.mkdir(parents=True)
    shutil.copy(TOP / "images" / "debian" / "finish", here)
    (here / "apt.kept").write_text("APT::Sandbox::User \"root\";\n")
    (root / "etc/apt/sources.list").write_text(f"deb [signed-by=/k] https://me:{CANARY}@mirror.test/debian bookworm main\ndeb http://b.test/d x main\n")
    for name in ("etc/apt/auth.conf", "etc/apt/auth.conf.d/one.conf", "etc/apt/apt.conf.d/99mmdebstrap", "etc/resolv.conf", "etc/hostname", "etc/hosts",
                 "etc/machine-id", "etc/ssl/certs/ca-certificates.crt"):
        (root / name).write_text(CANARY)
    subprocess.run([here / "finish", root], check=True)
    left = [path for path in root.rglob("*") if path.is_file() and CANARY in path.read_text()]
    assert left == []
    assert (root / "etc/apt/sources.list").read_text() == "deb [signed-by=/k] https://mirror.test/debian bookworm main\ndeb http://b.test/d x main\n"
    assert (root / "work").is_dir() and (root / "etc/machine-id").read_text() == ""


def test_rm_refuses_what_is_needed(world, work):
    done = image(world.state, "rm", "work")
    assert done.returncode == 1 and "the default" in done.stderr and "image default host" in done.stderr
    assert image(world.state, "default", "host").returncode == 0
    assert world.client.tool("sandbox_start", {"goal": "the default was changed"})["image"] == "host"
    done = image(world.state, "rm", "work")
    assert done.returncode == 1 and work["id"] in done.stderr and "in use" in done.stderr
    assert image(world.state, "default", "work").returncode == 0


def workers(state):
    """The process that builds, and all that it started."""
    return [int(path.parent.name) for path in Path("/proc").glob("[0-9]*/cmdline")
            if str(state).encode() in read(path) and (b"--images" in read(path) or b"mmdebstrap" in read(path))]


def read(path):
    try:
        return path.read_bytes()
    except OSError:
        return b""


def start_build(world, *words):
    """A build in a process group of its own, and the stages it tells, as they come."""
    process = subprocess.Popen([str(programs() / "parallelsandbox"), "image", "build", "debian", "--name", "work", "--packages", str(world.empty),
                                "--state", str(world.state), *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, start_new_session=True)
    seen = []

    def watch():
        for line in process.stderr:
            seen.append(line)

    reader = threading.Thread(target=watch, daemon=True)
    reader.start()
    return process, seen, reader


def is_whole(world, work):
    """The image as it was: the same version, and boxes of it, old and new."""
    fresh = world.client.tool("sandbox_start", {"goal": "after a broken build"})
    assert fresh["image"] == "work"
    for box in (work, fresh):
        assert world.client.exec(box["id"], "git --version && gcc --version >/dev/null && node -e 0 && echo whole")["stdout"].endswith("whole\n")
    for _ in range(2):  # archived, then deleted: an archive needs its version too
        world.client.stop(fresh["id"])


@pytest.mark.parametrize("whom, how, stage", [("worker", signal.SIGKILL, "reading the package lists"), ("command", signal.SIGKILL, "unpacking the base"),
                                              ("group", signal.SIGINT, "setting up")])
def test_a_build_that_is_ended_changes_nothing(world, work, whom, how, stage):
    before = world.versions()
    process, seen, reader = start_build(world)
    try:
        until(lambda: process.poll() is not None or any(stage in line for line in seen), timeout=300)
        assert process.poll() is None, seen
        second = image(world.state, "build", "debian")
        assert second.returncode == 1 and "being built" in second.stderr
        purge = subprocess.run([str(programs() / "parallelsandbox"), "down", "--purge", "--state", str(world.state)], capture_output=True, text=True, timeout=60, check=False)
        assert purge.returncode == 1 and "being built" in purge.stderr and world.server.process.poll() is None
        if whom == "worker":
            for pid in workers(world.state):
                if b"boxhost" in read(Path(f"/proc/{pid}/cmdline")).split(b"\0")[0]:
                    os.kill(pid, how)
                    break
        elif whom == "command":
            os.kill(process.pid, how)
        else:
            os.killpg(process.pid, how)
        code = process.wait(60)
        reader.join(20)
        assert code != 0 and (how == signal.SIGKILL or (code == 1 and "nothing was changed" in "".join(seen)))
    finally:
        process.kill()
    until(lambda: not workers(world.state), timeout=60)
    assert world.versions() == before and world.listed()["work"]["default"]
    assert not world.server.mounts()
    if whom != "worker":  # the others had the time to tidy up
        until(lambda: not list(world.images.glob(".build-*")))
    is_whole(world, work)


def test_swapped_under_running_boxes(world, work):
    old, = world.versions()
    world.client.exec(work["id"], "while sleep 0.2; do git --version >/dev/null || echo broken >>/work/broken; done >/dev/null 2>&1 & :")
    answer, _ = built(world.state, "--name", "work", "--packages", world.empty)
    assert answer["packages"] < world.built["packages"]
    assert not list(world.images.glob(".build-*")), "what a killed build left is gone too"
    fresh = world.client.tool("sandbox_start", {"goal": "from the new tree"})
    assert fresh["image"] == "work"
    has_git = "command -v git >/dev/null && echo yes || echo no"
    assert world.client.exec(fresh["id"], has_git)["stdout"] == "no\n"
    assert world.client.exec(work["id"], has_git)["stdout"] == "yes\n"
    assert len(world.versions()) == 2 and world.listed()["work"]["oldVersions"] == 1
    assert "older version still in use" in image(world.state, "list").stdout
    # programs that nobody ran before, after both programs were killed and came back
    os.kill(world.server.boxhost_pid(), signal.SIGKILL)
    world.server.kill()
    world.server.start()
    assert world.client.exec(work["id"], "python3 -c 'print(6 * 7)'; cat /work/broken 2>/dev/null")["stdout"] == "42\n"
    assert old in world.versions()
    world.client.stop(work["id"])
    world.client.stop(work["id"])
    until(lambda: len(world.versions()) == 1 and not list(world.images.glob(".gone-*")), timeout=60)
    assert world.client.exec(fresh["id"], "echo goes on")["stdout"] == "goes on\n"
    world.client.stop(fresh["id"])
    world.client.stop(fresh["id"])
    assert image(world.state, "default", "host").returncode == 0
    assert image(world.state, "rm", "work").returncode == 0
    assert list(world.listed()) == ["host"] and not (world.images / "work").exists()


def test_without_network_the_next_step_is_told(tmp_path):
    """In a network namespace without any way out."""
    state = tmp_path / "state"
    done = subprocess.run(["unshare", "-n", str(programs() / "parallelsandbox"), "image", "build", "debian", "--state", str(state)], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 1
    for words in ("cannot be reached", "apt-get update", "proxy", "sources.list", ".build.log"):
        assert words in done.stderr, done.stderr
    images = state / "boxhost" / "images"
    assert (images / ".build.log").stat().st_mode & 0o777 == 0o600
    assert not list(images.glob(".build-*")) and not list(images.glob("debian*"))
