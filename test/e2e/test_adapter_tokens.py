"""Many adapters with one token file: each time their token ends, one of them refreshes, whoever is killed meanwhile."""

import json
import os
import random
import select
import subprocess
import threading
import time

from test_adapter_signin import CONNECT, Place, binary  # noqa: F401
from mcpclient import StdioMcp
from scripted_oauth import ScriptedOAuth
from scripted_server import text_result

ADAPTERS = 20
KILLED = 5
ROUNDS = int(os.environ.get("PSBX_TOKEN_ROUNDS") or 20)  # the long run: 200
ASK = b"".join(json.dumps({"jsonrpc": "2.0", **m}).encode() + b"\n" for m in (
    {"id": 1, "method": "initialize", "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "n"}}},
    {"id": 2, "method": "tools/call", "params": {"name": "sandbox_list", "arguments": {}}}))


class Watcher(threading.Thread):
    """Reads the file all the time: it must always be whole."""

    def __init__(self, path):
        super().__init__(daemon=True)
        self.path, self.over, self.broken, self.reads = path, False, [], 0

    def run(self):
        while not self.over:
            text = self.path.read_text()
            self.reads += 1
            try:
                assert json.loads(text)["version"] == 1
            except (ValueError, AssertionError, KeyError):
                self.broken.append(text)
            time.sleep(0.001)


def answer_of(process, deadline):
    """What came for the tool call; bytes of stdout are read without a thread."""
    text = b""
    while b'"id":2' not in text or not text.endswith(b"\n"):
        ready, _, _ = select.select([process.stdout], [], [], max(0, deadline - time.monotonic()))
        chunk = os.read(process.stdout.fileno(), 65536) if ready else b""
        if not chunk:
            raise AssertionError(f"no answer: {text!r}")
        text += chunk
    return next(m for m in map(json.loads, text.splitlines()) if m.get("id") == 2)


def one_round(script, place, dice):
    env = {"PATH": os.environ["PATH"], **place.env()}
    before = script.refreshed
    if dice.random() < 0.5:
        place.change(expiresAt=int(time.time() * 1000) - 1000)  # they know it themselves
    script.end_access()
    group = [subprocess.Popen([binary()], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
             for _ in range(ADAPTERS)]
    for process in group:
        process.stdin.write(ASK)
        process.stdin.flush()
    dice.shuffle(group)
    for process in group[:KILLED]:
        time.sleep(dice.random() * 0.02)
        process.kill()
    deadline = time.monotonic() + 60
    answers = [answer_of(process, deadline) for process in group[KILLED:]]
    for process in group:
        process.stdin.close()
    for process in group:
        process.wait(20)
        process.stdout.close()
    assert all(a["result"].get("structuredContent") == {"ok": 1} for a in answers), answers
    assert script.refreshed == before + 1 and script.replayed == 0
    assert place.read()["tokens"]["access"] in script.access and "refreshing" not in place.read()


def test_one_refresh_a_round_whoever_is_killed(tmp_path):
    dice = random.Random(7)
    with ScriptedOAuth(tmp_path) as script:
        script.on_tool["sandbox_list"] = lambda call: call.json(text_result({"ok": 1}))
        place = Place(tmp_path, script)
        with StdioMcp([binary()], env=place.env()) as first:
            first.initialize()
            assert first.tool(CONNECT).data["connected"]
        watcher = Watcher(place.file)
        watcher.start()
        for _ in range(ROUNDS):
            one_round(script, place, dice)
        watcher.over = True
        watcher.join(10)
        assert not watcher.broken and watcher.reads > ROUNDS
        assert len(script.authorizations) == 1 and not list(place.auth.glob("*.broken*"))
        assert not [name for name in os.listdir(place.auth) if not name.endswith((".json", ".lock"))]
