"""sandbox_sync of a git tree of 10,000 files: the first time, unchanged, after one edit.

Against the published adapter on the same server, `rsync -a` over a loopback socket, and `git status` on the same tree."""

import hashlib
import itertools
import random
import socket
import subprocess
import time

from benchlib import Row, Skip, median, note
from mcpclient import StdioMcp

TITLE = "sync a git tree of 10,000 files"
FILES = 10000


def make_tree(root):
    """Text of the sizes that source trees have (a few hundred bytes to some tens of KiB), in 500 folders."""
    dice = random.Random(7)
    words = [hashlib.sha256(bytes([n])).hexdigest()[:dice.randrange(3, 11)] for n in range(256)]
    for number in range(FILES):
        folder = root / f"part{number // 500}" / f"dir{number // 20 % 25}"
        folder.mkdir(parents=True, exist_ok=True)
        size = min(int(dice.lognormvariate(7.3, 1.1)), 60000)
        text = " ".join(dice.choice(words) for _ in range(size // 7 + 1))
        (folder / f"file{number}.txt").write_text(text + f"\n{number}\n")
    commit = ["-c", "user.name=bench", "-c", "user.email=bench@localhost", "commit", "-qm", "tree"]
    for command in (["init", "-q"], ["config", "gc.auto", "0"], ["add", "-A"], commit):
        subprocess.run(["git", "-c", "init.defaultBranch=main", *command], cwd=root, check=True)
    subprocess.run(["git", "gc", "-q"], cwd=root, check=True)


def timed(function):
    started = time.perf_counter()
    result = function()
    return time.perf_counter() - started, result


class Rsync:
    """A daemon on loopback and the client that sends to it."""

    def __init__(self, bench, tree):
        bench.need("rsync", "it is what syncing is compared with")
        self.tree = tree
        self.target = bench.scratch / "rsync"
        self.target.mkdir()
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        config = bench.scratch / "rsyncd.conf"
        config.write_text(f"use chroot = no\nlog file = /dev/null\n[to]\npath = {self.target}\nread only = no\nuid = root\ngid = root\n")
        self.daemon = subprocess.Popen(["rsync", "--daemon", "--no-detach", f"--port={self.port}", "--address=127.0.0.1",
                                        f"--config={config}"])
        for _ in range(200):
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                time.sleep(0.02)
        raise Skip("the rsync daemon does not answer")

    def sync(self, dest):
        subprocess.run(["rsync", "-a", "--exclude=/.git", f"{self.tree}/", f"rsync://127.0.0.1:{self.port}/to/{dest}/"], check=True)

    def close(self):
        self.daemon.kill()
        self.daemon.wait()


def adapter_sync(adapter, box, tree, dest):
    result = adapter.tool("sandbox_sync", {"id": box, "localPath": str(tree), "dest": dest}, timeout=600)
    if result.is_error:
        raise RuntimeError(result.text)
    return result.data


def run(bench):
    tree = bench.scratch / "tree"
    tree.mkdir()
    make_tree(tree)
    instance = bench.server()
    client = instance.client()
    box = client.start("measure how fast a tree is synced", size="large")
    env = instance.adapter_env(HOME=str(bench.scratch))
    sides = {"ours": StdioMcp(bench.adapter(), env=env)}
    try:
        if client.exec(box, "command -v node", note="does the box have node").data["exitCode"] != 0:
            raise Skip("the published adapter's comparison needs node in the box")
        sides["npm"] = StdioMcp(bench.npm_adapter(), env=env)
    except Skip as reason:
        note(f"not against the npm adapter: {reason}")
    for adapter in sides.values():
        adapter.initialize()
        adapter.tools()
    rsync = Rsync(bench, tree)
    syncs = {name: (lambda dest, a=adapter: adapter_sync(a, box, tree, dest)) for name, adapter in sides.items()}
    syncs["rsync"] = rsync.sync
    try:
        took = {kind: {name: [] for name in (*syncs, "git status")} for kind in ("first", "unchanged", "one edit")}
        for name, sync in syncs.items():  # one warm-up each, and what the other kinds go on with
            result = sync(f"{name}-kept")
            if result is not None and result["files"] != FILES:
                raise RuntimeError(f"{name} sent {result['files']} files of {FILES}")
        edits = itertools.count()
        for _ in range(bench.rounds(5, 2)):
            number = next(edits)
            for name, sync in syncs.items():
                took["first"][name].append(timed(lambda s=sync, n=name: s(f"{n}-first{number}"))[0])
                client.exec(box, f"rm -rf {name}-first{number}", note="make room for the next round")
        for _ in range(bench.rounds(9, 3)):
            for name, sync in syncs.items():
                spent, result = timed(lambda s=sync, n=name: s(f"{n}-kept"))
                took["unchanged"][name].append(spent)
                if result is not None and result["sentFiles"] != 0:
                    raise RuntimeError(f"{name} sent {result['sentFiles']} files of an unchanged tree")
            took["unchanged"]["git status"].append(timed(lambda: subprocess.run(
                ["git", "status", "--porcelain"], cwd=tree, stdout=subprocess.DEVNULL, check=True))[0])
        for _ in range(bench.rounds(9, 3)):
            for name, sync in syncs.items():
                (tree / "part3" / "dir7" / "file1640.txt").write_text(f"edit {next(edits)}\n")
                spent, result = timed(lambda s=sync, n=name: s(f"{n}-kept"))
                took["one edit"][name].append(spent)
                if result is not None and result["sentFiles"] != 1:
                    raise RuntimeError(f"{name} sent {result['sentFiles']} files for one edit")
        seen = client.exec(box, "cat ours-kept/part3/dir7/file1640.txt", note="the edit is there")
        if not seen["stdout"].startswith("edit "):
            raise RuntimeError(seen)
    finally:
        rsync.close()
        for adapter in sides.values():
            adapter.kill()
    for kind, values in took.items():
        mine = median(values["ours"]) * 1000
        if "npm" in values and values["npm"]:
            other = median(values["npm"]) * 1000
            yield Row(f"sync, {kind}", mine, "npm adapter", other, other / mine, at_least=5)
        other = median(values["rsync"]) * 1000
        yield Row(f"sync, {kind}", mine, "rsync -a", other, mine / other, at_most=1)
    mine, other = median(took["unchanged"]["ours"]) * 1000, median(took["unchanged"]["git status"]) * 1000
    yield Row("sync, unchanged", mine, "git status", other, mine / other, at_most=2)
