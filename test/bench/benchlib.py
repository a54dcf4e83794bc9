"""What the measurements share: the C measuring end, a server for them, and rows with a ratio, a target and a verdict."""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(TOP / "test" / "e2e"))
sys.path.insert(0, str(TOP / "scripts"))

import peers as npm_peers  # noqa: E402
from instance import Instance, programs, until  # noqa: E402, F401


class Skip(Exception):
    """A measurement, or one side of it, that cannot be taken here, and why."""


class Row:
    """One figure: ours against something, as a ratio. `at_most` or `at_least` is the target for it."""

    def __init__(self, figure, ours, against, other, ratio, unit="ms", at_most=None, at_least=None):
        self.figure = figure
        self.ours = ours
        self.against = against
        self.other = other
        self.ratio = ratio
        self.unit = unit
        self.at_most = at_most
        self.at_least = at_least

    @property
    def met(self):
        if self.at_most is not None:
            return self.ratio <= self.at_most
        if self.at_least is not None:
            return self.ratio >= self.at_least
        return True

    @property
    def target(self):
        if self.at_most is not None:
            return f"<= {self.at_most:g}"
        if self.at_least is not None:
            return f">= {self.at_least:g}"
        return "-"

    def as_dict(self):
        return {"figure": self.figure, "ours": self.ours, "against": self.against, "other": self.other,
                "ratio": self.ratio, "unit": self.unit, "target": self.target, "met": self.met}


class Bench:
    """What every measurement gets: sizes, a scratch folder, and helpers that end with it."""

    def __init__(self, quick=False):
        self.quick = quick
        self.scratch = Path(tempfile.mkdtemp(prefix="psbx-bench-", dir=os.environ.get("PSBX_TEST_STATE", "/var/tmp")))
        self.scratch.chmod(0o755)
        self._floor = None
        self._open = []

    def rounds(self, full, quick):
        return quick if self.quick else full

    def floor(self, *arguments, env=None, wrap=()):
        """Starts one mode of floor.c."""
        if self._floor is None:
            self._floor = self.scratch / "floor"
            subprocess.run(["gcc", "-O2", "-D_GNU_SOURCE", "-o", str(self._floor), str(TOP / "test/bench/floor.c")], check=True)
        measure = Measure([*wrap, str(self._floor), *map(str, arguments)], env)
        self._open.append(measure)
        return measure

    def server(self, **more):
        instance = Instance(**{"log_level": "warning", "warm": None, **more})
        self._open.append(instance)
        return instance.start()

    @staticmethod
    def peer(name):
        if not npm_peers.installed(name) or not npm_peers.installed("node"):
            raise Skip(f"the npm peer {name} is not installed (scripts/install-packages.sh npm-test)")
        return npm_peers.peer_dir(name) / "node_modules"

    def npm_adapter(self):
        """argv of the published adapter."""
        script = self.peer("adapter") / "parallelsandbox-mcp" / "index.mjs"
        return [str(npm_peers.node_bin() / "node"), str(script)]

    @staticmethod
    def adapter():
        return [str(programs() / "parallelsandbox-mcp")]

    @staticmethod
    def need(program, reason):
        if shutil.which(program) is None:
            raise Skip(f"{program} is not installed: {reason}")

    def close(self):
        """Ends everything; returns what the servers left behind."""
        left = []
        for one in reversed(self._open):
            if isinstance(one, Instance):
                left += one.finish()
            else:
                one.close()
        self._open.clear()
        shutil.rmtree(self.scratch, ignore_errors=True)
        return left


class Measure:
    """A running floor program. once() lets it do its thing one time and returns microseconds."""

    def __init__(self, argv, env=None):
        self.process = subprocess.Popen(argv, env=dict(os.environ, **(env or {})), stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, cwd="/")
        self.last = []

    def once(self, line="\n"):
        self.process.stdin.write(line.encode() if isinstance(line, str) else line)
        self.process.stdin.flush()
        answer = self.process.stdout.readline().split()
        if not answer:
            raise RuntimeError(f"the measuring program ended with {self.process.wait()}")
        self.last = [part.decode() for part in answer]
        return float(answer[0])

    def post(self, request: bytes):
        """For mode post: sends the whole request; returns (microseconds, status, body)."""
        took = self.once(b"%d\n" % len(request) + request)
        return took, int(self.last[1]), self.process.stdout.read(int(self.last[2]))

    def close(self):
        try:
            self.process.stdin.close()
            self.process.wait(5)
        except (OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()


class Caller:
    """Makes the bytes of tool calls, as a client that has initialized would send them."""

    def __init__(self, instance, measure):
        self.instance = instance
        self.measure = measure
        self.client = instance.client()
        self.number = 100000

    def request(self, name, arguments):
        self.number += 1
        body = json.dumps({"jsonrpc": "2.0", "id": self.number, "method": "tools/call",
                           "params": {"name": name, "arguments": arguments}}).encode()
        head = {"Host": f"127.0.0.1:{self.instance.port}", "Content-Length": str(len(body)), **self.client.headers()}
        lines = "".join(f"{key}: {value}\r\n" for key, value in head.items())
        return f"POST /mcp HTTP/1.1\r\n{lines}\r\n".encode() + body

    def call(self, name, arguments):
        """Returns (microseconds, structured result)."""
        took, status, body = self.measure.post(self.request(name, arguments))
        if status != 200:
            raise RuntimeError(f"{name}: HTTP {status}: {body[:500]!r}")
        message = None
        for line in body.split(b"\n"):  # plain JSON, or the data lines of an event stream
            text = line.removeprefix(b"data:").strip()
            if text.startswith(b"{"):
                candidate = json.loads(text)
                if candidate.get("id") == self.number:
                    message = candidate
        if message is None or "error" in message or message["result"].get("isError"):
            raise RuntimeError(f"{name}: {body[:1000]!r}")
        return took, message["result"]["structuredContent"]


def median(values):
    return statistics.median(values)


def p95(values):
    return sorted(values)[min(len(values) - 1, int(len(values) * 0.95))]


def note(text):
    print(f"    {text}", flush=True)


def docker_image(bench):
    """The name of an image with `true` in it, when a Docker engine runs here."""
    if shutil.which("docker") is None:
        raise Skip("docker is not installed")
    if subprocess.run(["docker", "info"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode != 0:
        raise Skip("no Docker engine runs here")
    done = subprocess.run(["docker", "image", "ls", "--format", "{{.Repository}}:{{.Tag}}"], stdout=subprocess.PIPE, text=True,
                          check=True)
    for image in done.stdout.split():
        if "<none>" not in image and subprocess.run(["docker", "run", "--rm", image, "true"], stdout=subprocess.DEVNULL,
                                                    stderr=subprocess.DEVNULL, check=False).returncode == 0:
            return image
    raise Skip("Docker runs, but has no image with `true` in it")
