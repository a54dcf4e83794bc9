"""Fixtures of the end-to-end tests: whole servers, the adapter, and the peers from npm."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "scripts"))

import peers as npm_peers  # noqa: E402
from instance import TOP, Instance, programs  # noqa: E402
from mcpclient import StdioMcp  # noqa: E402


def pytest_collection_modifyitems(items):
    if os.geteuid() == 0:
        return
    mark = pytest.mark.skip(reason="boxes are made by root, and this run is not root")
    for item in items:
        if {"server", "new_server"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(mark)


@pytest.fixture(scope="module")
def server(request):
    """One server for the tests of a file, with the options that the file names in SERVER."""
    instance = Instance(arguments=getattr(request.module, "SERVER", ()))
    try:
        instance.start()
        yield instance
        left = instance.finish()
    except BaseException:
        print(instance.log_tail())
        raise
    finally:
        instance.sweep()
    assert not left, "left behind:\n" + "\n".join(left)


@pytest.fixture
def new_server():
    """Makes servers for one test; each is stopped and checked at its end."""
    made = []

    def make(**arguments):
        instance = Instance(**arguments)
        made.append(instance)
        return instance.start()

    yield make
    left = []
    for instance in made:
        try:
            left += instance.finish()
        finally:
            instance.sweep()
    assert not left, "left behind:\n" + "\n".join(left)


@pytest.fixture
def client(server):
    return server.client()


@pytest.fixture
def box(client):
    """A box for one test."""
    name = client.start()
    yield name
    client.stop(name)
    client.stop(name)


@pytest.fixture
def adapter(server):
    """Starts our stdio adapter against the server; more environment as keyword arguments."""
    made = []

    def start(cwd=None, **env):
        made.append(StdioMcp([str(programs() / "parallelsandbox-mcp")], env=server.adapter_env(**env), cwd=cwd))
        return made[-1]

    yield start
    for one in made:
        one.kill()


class Peers:
    """The npm packages to test against, and the Node to run them with."""

    def __init__(self):
        for name in npm_peers.listed("npm-test"):
            if not npm_peers.installed(name):
                pytest.skip(f"the npm packages of the test peers are not installed here ({name}); "
                            "scripts/install-packages.sh npm-test does it")
        self.node = str(npm_peers.node_bin() / "node")

    @staticmethod
    def modules(name):
        return npm_peers.peer_dir(name) / "node_modules"

    def env(self, **more):
        return {"PATH": f"{npm_peers.node_bin()}:{os.environ.get('PATH', '')}", "LANG": "C.UTF-8", **more}

    def driver(self, name, script, folder):
        """A driver of test/e2e/drivers, placed so that its imports find the peer's packages."""
        place = Path(folder) / f"driver-{name}"
        place.mkdir(exist_ok=True)
        link = place / "node_modules"
        if not link.exists():
            link.symlink_to(self.modules(name))
        for source in (TOP / "test" / "e2e" / "drivers").glob("*.mjs"):
            (place / source.name).write_bytes(source.read_bytes())
        return str(place / script)

    def run(self, arguments, timeout=300, **env):
        """Runs Node with these arguments; returns the finished process."""
        return subprocess.run([self.node, *map(str, arguments)], env=self.env(**env), stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=timeout, check=False)


@pytest.fixture(scope="session")
def peers():
    return Peers()


@pytest.fixture(scope="session")
def probes():
    """The wire probes that lie beside the checkout, outside this repository."""
    folder = Path(os.environ.get("PSBX_SHARED") or TOP.parent / "shared") / "probes"
    if not (folder / "mcp_probe.mjs").exists():
        pytest.skip("the wire probes are not beside this checkout (PSBX_SHARED names their folder)")
    return folder


@pytest.fixture
def repository(tmp_path):
    """A small git repository with what makes syncing interesting."""
    root = tmp_path / "repo"
    root.mkdir()

    def git(*arguments):
        subprocess.run(["git", "-c", "user.name=test", "-c", "user.email=test@localhost", "-c", "init.defaultBranch=main",
                        *arguments], cwd=root, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    git("init")
    (root / "README").write_text("a repository for a test\n")
    (root / "src").mkdir()
    (root / "src" / "hello.sh").write_text("#!/bin/sh\necho hello from the repository\n")
    (root / "src" / "hello.sh").chmod(0o755)
    (root / "src" / "données.txt").write_text("accents in the name\n")
    (root / "src" / "with space").write_text("a space in the name\n")
    (root / "link").symlink_to("src/hello.sh")
    (root / ".gitignore").write_text("*.o\nout/\n")
    git("add", "-A")
    git("commit", "-m", "first")
    (root / "new.txt").write_text("untracked, not ignored\n")
    (root / "ignored.o").write_text("never sent\n")
    return root
