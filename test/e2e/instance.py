"""One whole, independent server for a test or a measurement: started, asked, stopped, and nothing of it left behind."""

import http.client
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import urllib.parse
from pathlib import Path

from mcpclient import McpClient

TOP = Path(__file__).resolve().parent.parent.parent
CGROUPS = Path("/sys/fs/cgroup")


def programs() -> Path:
    """The folder with the programs under test."""
    return Path(os.environ.get("PSBX_BIN") or TOP / "build" / "bin")


def until(condition, timeout=30):
    """Waits for a condition and returns what it gave; a test's only clock is this generous limit."""
    deadline = time.monotonic() + timeout
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout} s: {found!r}")
        time.sleep(0.02)


class Instance:
    """`parallelsandbox serve` on a state folder of its own and a free port. start() may be called again after stop()
    or kill(): the state stays until remove(). Tests count boxes, so none stands ready unless one asks for it: `warm` is
    how many may, None what the server does by itself."""

    def __init__(self, log_level="info", arguments=(), env=None, warm=0):
        # Not below a private temporary folder: the server gives up root and must still reach its state.
        self.base = Path(tempfile.mkdtemp(prefix="psbx-test-", dir=os.environ.get("PSBX_TEST_STATE", "/var/tmp")))
        self.base.chmod(0o755)
        self.state = self.base / "state"
        self.state.mkdir()
        self.log = self.base / "log"
        self.log_level = log_level
        self.arguments = [*arguments, *([] if warm is None else ["--warm", str(warm)])]
        self.env = dict(os.environ, **(env or {}))
        self.process = None
        self.url = None
        self.port = 0
        self.keys = {}
        self.indices = set()
        self.instance_names = set()
        self._clients = []

    # --- life ---------------------------------------------------------------------------------------------
    def start(self, port=None):
        port = self.port if port is None else port  # a restart keeps its address, so that clients find it again
        command = [str(programs() / "parallelsandbox"), "serve", "--state", str(self.state), "--listen",
                   f"127.0.0.1:{port}", "--log-level", self.log_level, *self.arguments]
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log,
                                            env=self.env, cwd="/", start_new_session=True)
        killer = threading.Timer(60, self.process.kill)
        killer.start()
        line = self.process.stdout.readline()
        killer.cancel()
        try:
            self.url = json.loads(line)["listening"].rstrip("/")
        except (ValueError, KeyError, TypeError):
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"the server did not say where it listens: {line!r}\n{self.log_tail()}") from None
        self.port = urllib.parse.urlsplit(self.url).port
        threading.Thread(target=self._drain, args=(self.process.stdout,), daemon=True).start()
        self._wait_ready()
        self._note_names()
        return self

    @staticmethod
    def _drain(stream):
        for _ in stream:
            pass

    def _wait_ready(self):
        deadline = time.monotonic() + 60
        status = None
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise AssertionError(f"the server ended with {self.process.returncode}\n{self.log_tail()}")
            try:
                status = self.get("/readyz")[0]
                if status == 200:
                    return
            except OSError as error:
                status = error
            time.sleep(0.02)
        raise AssertionError(f"the server is not ready: /readyz says {status}\n{self.log_tail()}")

    def stop(self, limit=60):
        """Ends the server as an operator would. Boxes stay."""
        if self.process is None:
            return None
        self._note_names()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(limit)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                raise AssertionError(f"the server did not stop within {limit} s\n{self.log_tail()}") from None
        code, self.process = self.process.returncode, None
        return code

    def kill(self):
        """kill -9, the server alone."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    # --- asking -------------------------------------------------------------------------------------------
    def get(self, path, timeout=10):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def command(self, *arguments, check=True):
        """An admin command on this state; returns its output."""
        done = subprocess.run([str(programs() / "parallelsandbox"), *arguments, "--state", str(self.state)],
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              timeout=60, check=False)
        if check and done.returncode != 0:
            raise AssertionError(f"{' '.join(arguments)} ended with {done.returncode}: {done.stderr}")
        return done.stdout

    def key(self, name="test"):
        """The API key of that name, made at the first call."""
        if name not in self.keys:
            output = self.command("keys", "add", name)
            match = re.search(r"\bpsbx_[A-Za-z0-9_-]+", output)
            if not match:
                raise AssertionError(f"`keys add` printed no key: {output!r}")
            self.keys[name] = match.group(0)
        return self.keys[name]

    def client(self, agent=None, key=None, initialize=True, **more):
        client = McpClient(self.url, key or self.key(), agent=agent, **more)
        if initialize:
            client.initialize()
        self._clients.append(client)
        return client

    def adapter_env(self, **more):
        """The environment for a stdio adapter that talks to this server."""
        return {"PARALLELSANDBOX_MCP_URL": self.url + "/mcp", "PARALLELSANDBOX_API_URL": self.url,
                "PARALLELSANDBOX_API_KEY": self.key(), **more}

    def log_tail(self, size=6000):
        try:
            return self.log.read_text(errors="replace")[-size:]
        except OSError:
            return ""

    # --- what would be left -------------------------------------------------------------------------------
    def _note_names(self):
        try:
            self.instance_names.add((self.state / "boxhost" / "instance").read_text().strip())
        except OSError:
            pass
        self.instance_names.discard("")
        for spec in self.state.glob("boxhost/boxes/*/spec.json"):
            try:
                index = json.loads(spec.read_text()).get("index")
            except (OSError, ValueError):
                continue
            if isinstance(index, int):
                self.indices.add(index)

    def destroy_boxes(self):
        """Stops and deletes every box of every key that was handed out."""
        for key in self.keys.values():
            client = McpClient(self.url, key)
            client.initialize()
            for _ in range(100):  # the first stop archives, the next deletes; a list is bounded
                boxes = client.tool("sandbox_list", {"all": True}).data["boxes"]
                if not boxes:
                    break
                for box in boxes:
                    client.tool("sandbox_stop", {"id": box["id"]})
            client.close()

    def processes(self):
        """pids of processes that belong to this instance: by cgroup, or by the state folder on their command line."""
        found = []
        marks = [str(self.state).encode()]
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            try:
                command = (entry / "cmdline").read_bytes()
                groups = (entry / "cgroup").read_text()
            except OSError:
                continue
            if not command and self.parent(int(entry.name)) in (1, None):
                continue  # it has ended, and only waits for init to take note
            if any(mark in command for mark in marks) or any(name in groups for name in self.instance_names):
                found.append((int(entry.name), command.replace(b"\0", b" ").decode(errors="replace").strip()))
        return found

    def supervisor_pid(self):
        """The process that keeps a boxhost running for this server; it has the server's command line."""
        for pid, command in self.processes():
            if "serve" in command.split()[1:2] and (self.process is None or pid != self.process.pid):
                return pid
        return None

    def boxhost_pid(self):
        """This server's boxhost itself, not one of its helpers."""
        supervisor = self.supervisor_pid()
        for pid, command in self.processes():
            if command.split(" ")[0].endswith("/boxhost") and self.parent(pid) == supervisor:
                return pid
        return None

    @staticmethod
    def parent(pid):
        try:
            return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
        except OSError:
            return None

    def box_pid(self, box):
        """PID 1 of a box, as the host sees it."""
        return json.loads((self.state / "boxhost" / "boxes" / box / "spec.json").read_text())["pid"]

    def boxes_on_disk(self):
        return {path.name for path in self.state.glob("boxhost/boxes/*")}

    def archives_on_disk(self):
        return {path.name for path in self.state.glob("boxhost/archive/*")}

    def box_folders(self):
        return [*self.state.glob("boxhost/boxes/*"), *self.state.glob("boxhost/archive/*")]

    def box_cgroups(self):
        return {inner.name for path in self.cgroups() for inner in path.iterdir() if inner.is_dir()}

    def cgroups(self):
        found = []
        for name in self.instance_names:
            for root in (CGROUPS, *CGROUPS.iterdir()) if CGROUPS.is_dir() else ():
                if root.is_dir() and not root.is_symlink():
                    found += [path for pattern in (f"*{name}*", f"*/*{name}*") for path in self._folders(root, pattern)]
        return sorted(set(found))

    @staticmethod
    def _folders(root, pattern):
        """What matches, while groups of other instances come and go beside it."""
        while True:
            try:
                return [path for path in root.glob(pattern) if path.is_dir()]
            except FileNotFoundError:
                continue

    def mounts(self):
        return [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if str(self.base) in line]

    def links(self):
        return [f"psb{index}" for index in sorted(self.indices) if Path(f"/sys/class/net/psb{index}").exists()]

    def tables(self):
        done = subprocess.run(["nft", "list", "tables"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                              check=False)
        return [line for line in done.stdout.splitlines() if any(name in line for name in self.instance_names)]

    def leftovers(self):
        left = [f"process {pid}: {command}" for pid, command in self.processes()]
        left += [f"cgroup {path}" for path in self.cgroups()]
        left += [f"mount {line}" for line in self.mounts()]
        left += [f"link {name}" for name in self.links()]
        left += [f"nft {line}" for line in self.tables()]
        left += [f"box folder {path}" for path in self.box_folders()]
        return left

    def box_leftovers(self, boxes_only=False):
        """What only a box can have left: everything but the instance's own table, cgroups and mounts. With boxes_only the
        instance itself may still run."""
        left = [] if boxes_only else [f"process {pid}: {command}" for pid, command in self.processes()]
        left += [f"cgroup {inner}" for path in self.cgroups() for inner in path.iterdir() if inner.is_dir()]
        left += [f"link {name}" for name in self.links()]
        left += [f"box folder {path}" for path in self.box_folders()]
        return left

    @staticmethod
    def _settled(look, limit=30):
        deadline = time.monotonic() + limit
        while True:
            left = look()
            if not left or time.monotonic() > deadline:
                return left
            time.sleep(0.05)

    def left(self):
        """leftovers(), with a moment for the kernel to finish what ends."""
        return self._settled(self.leftovers)

    def finish(self):
        """Destroys the boxes, stops the server and returns what it left behind (nothing, one hopes)."""
        left = []
        try:
            for client in self._clients:
                client.close()
            if self.process is not None and self.process.poll() is None:
                self.destroy_boxes()
                self._note_names()
            self.stop()
            left = self._settled(self.box_leftovers)
            # What belongs to the instance itself stays while its state does; `down` takes it away like this.
            subprocess.run([str(programs() / "boxhost"), "--cleanup", "--state", str(self.state)], stdin=subprocess.DEVNULL,
                           stdout=subprocess.DEVNULL, timeout=60, check=True)
            left += self._settled(self.leftovers)
        finally:
            self.sweep()
        return left

    def sweep(self):
        """Whatever is still there is taken away, so that one broken test does not harm the next."""
        self.kill()
        for pid, _ in self.processes():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        for line in self.mounts():
            subprocess.run(["umount", "-l", line.split()[4]], stderr=subprocess.DEVNULL, check=False)
        for group in sorted(self.cgroups(), key=lambda path: -len(path.parts)):
            for inner in sorted((p for p in group.rglob("*") if p.is_dir()), key=lambda path: -len(path.parts)):
                try:
                    inner.rmdir()
                except OSError:
                    pass
            try:
                group.rmdir()
            except OSError:
                pass
        for line in self.tables():
            subprocess.run(["nft", "delete", *line.split()], stderr=subprocess.DEVNULL, check=False)
        shutil.rmtree(self.base, ignore_errors=True)
