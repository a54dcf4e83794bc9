"""Servers that are killed, stopped and started again: nothing that was acknowledged is lost, and nothing else is left."""

import collections
import io
import os
import random
import signal
import subprocess
import tarfile
import threading
import time

import pytest
from instance import programs, until
from mcpclient import McpError

SEED = int(os.environ.get("PSBX_SEED") or random.SystemRandom().randrange(1 << 32))
BROKEN = (OSError, McpError, AttributeError, ValueError)  # what a killed server does to a call


def archive(number):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name in ("one", "two", "three"):
            data = f"{name} {number} ".encode() * 20000
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


class Load:
    """Threads that start, use and stop boxes, and remember what the server has told them."""

    def __init__(self, server, threads=4):
        self.server = server
        self.lock = threading.Lock()
        self.live = {}       # id -> the marker that an answered command has written, or None
        self.kept = set()    # those of live that are never stopped
        self.unsure = set()  # a stop was asked for and not answered
        self.ended = set()
        self.done = collections.Counter()  # answered, by kind; and "broken": cut in the middle
        self.gate = threading.Event()
        self.quit = False
        self.idle = threading.Semaphore(0)
        self.threads = [threading.Thread(target=self.work, args=(n,), daemon=True) for n in range(threads)]
        for thread in self.threads:
            thread.start()

    def work(self, number):
        client = self.server.client(initialize=False)
        draw = random.Random(SEED + number)
        while True:
            self.idle.release()
            self.gate.wait()
            self.idle.acquire()
            if self.quit:
                return
            while self.gate.is_set() and not self.quit:
                try:
                    self.step(client, draw)
                except BROKEN:
                    self.done["broken"] += 1
                    client.close()
                    time.sleep(0.01)

    def step(self, client, draw):
        with self.lock:
            mine = [box for box in self.live if hash(box) % len(self.threads) == draw.randrange(len(self.threads))]
            count = len(self.live)
        choice = draw.random()
        if count < 3 or (choice < 0.3 and count < 6):
            result = client.tool("sandbox_start", {"goal": "load", "size": "small"})
            if not result.is_error:
                with self.lock:
                    self.done["start"] += 1
                    self.live[result.data["id"]] = None
        elif mine and choice < 0.6:
            marker = f"{draw.randrange(1 << 60)}"
            result = client.exec(mine[0], f"echo {marker} >> /work/markers; sync -d /work/markers")
            if not result.is_error and result.data.get("exitCode") == 0:
                with self.lock:
                    self.done["exec"] += 1
                    if mine[0] in self.live:
                        self.live[mine[0]] = marker
        elif mine and choice < 0.8:
            if client.rest("POST", f"/v1/boxes/{mine[0]}/sync?dest=synced", archive(draw.randrange(3)))[0] == 200:
                self.done["sync"] += 1
        elif count > 3:
            with self.lock:
                box = draw.choice(sorted(set(self.live) - self.kept))
                del self.live[box]
                self.unsure.add(box)
            if not client.stop(box).is_error:
                with self.lock:
                    self.done["stop"] += 1
                    self.unsure.discard(box)
                    self.ended.add(box)

    def pause(self):
        self.gate.clear()
        for _ in self.threads:
            assert self.idle.acquire(timeout=60), "a call never came back"
        for _ in self.threads:
            self.idle.release()

    def end(self):
        self.quit = True
        self.gate.set()
        for thread in self.threads:
            thread.join(30)

    def check(self, client):
        """The server is up and nobody asks: what it says, what the machine has, and what was acknowledged agree."""
        listed = {row["id"]: row for row in client.tool("sandbox_list", {})["boxes"]}
        lost = set(self.live) - set(listed)
        assert not lost, f"acknowledged and gone: {lost}"
        back = set(listed) & self.ended
        assert not back, f"stopped and back: {back}"
        for box, row in listed.items():
            if row["status"] != "running":
                assert box in self.unsure, f"{box}: {row['status']} ({row.get('statusReason')})"
        until(lambda: self.server.boxes_on_disk() <= set(listed))
        until(lambda: self.server.box_cgroups() <= set(listed))
        for box, row in listed.items():
            if row["status"] == "running":
                self.check_box(client, box)
        for box in set(listed) - set(self.live):  # its start was never answered, or its stop was not
            result = client.stop(box)
            assert not result.is_error, result.text
        self.unsure.clear()
        until(lambda: self.server.boxes_on_disk() == set(self.live))

    def check_box(self, client, box):
        result = client.exec(box, "cat /work/markers 2>/dev/null; cd /work/synced 2>/dev/null && ls -A && "
                                  "for f in one two three; do [ -e $f ] && { wc -c < $f; tr ' ' '\\n' < $f | sort -u | grep -c .; }; done; true")
        assert not result.is_error, f"{box} does not work: {result.text}"
        marker = self.live.get(box)
        assert marker is None or marker in result["stdout"], f"{box} has lost what an answered command wrote"
        lines = [line for line in result["stdout"].split() if len(line) < 9]
        assert set(line for line in lines if not line.isdigit()) <= {"one", "two", "three"}, f"temporaries are left: {lines}"
        for size in (line for line in lines if line.isdigit() and len(line) > 1):
            assert int(size) in (120000, 160000), "a file is half"


@pytest.fixture
def load(new_server):
    made = []

    def make(server):
        made.append(Load(server))
        return made[-1]

    yield make
    for one in made:
        one.end()


def random_rounds(server, load, rounds, break_it):
    draw = random.Random(SEED)
    for number in range(rounds):
        load.gate.set()
        time.sleep(draw.random() * 0.35)
        try:
            break_it(number)
            load.pause()
            client = server.client()
            load.check(client)
            client.close()
        except BaseException as error:
            raise AssertionError(f"round {number}, PSBX_SEED={SEED}\n{server.log_tail()}") from error
    missing = {"start", "exec", "sync", "stop"} - set(load.done)
    assert not missing, f"there was no load: {load.done}"


def test_the_server_is_killed_fifty_times_under_load(new_server, load):
    server = new_server()
    client = server.client(agent="restart")
    keeper = client.start(size="small")
    client.exec(keeper, "i=0; while :; do i=$((i+1)); echo $i; sleep 0.01; done", background=True, note="count")
    job = client.tool("sandbox_procs", {"id": keeper, "action": "list"})["procs"][0]["bgId"]
    session = client.session
    work = load(server)
    work.live[keeper] = None
    work.kept.add(keeper)

    def kill(_):
        server.kill()
        server.start()

    random_rounds(server, work, 50, kill)
    assert work.done["broken"] > 10, "the server was killed under load"
    assert client.session == session and session
    seen = client.tool("sandbox_procs", {"id": keeper, "action": "wait", "bgId": job, "timeoutSec": 1})
    assert seen["running"] is True, "a background job survives"
    client.tool("sandbox_procs", {"id": keeper, "action": "stop", "bgId": job})
    ended = client.tool("sandbox_procs", {"id": keeper, "action": "wait", "bgId": job})
    text = client.fetch(ended["outputUrl"])[2].decode() if "outputUrl" in ended.data else ended["stdout"]
    numbers = [int(line) for line in text.split()]
    assert len(numbers) > 100 and numbers == list(range(1, len(numbers) + 1)), "with all of its output"
    row = next(row for row in client.tool("sandbox_list", {})["boxes"] if row["id"] == keeper)
    assert row["agent"]["thisConversation"] is True
    work.end()
    print(work.done)


def test_boxhost_is_killed_under_load(new_server, load):
    server = new_server()
    work = load(server)

    def kill(_):
        pid = until(server.boxhost_pid)
        os.kill(pid, signal.SIGKILL)
        until(lambda: server.boxhost_pid() not in (None, pid))
        until(lambda: server.get("/readyz")[0] == 200)

    random_rounds(server, work, 10, kill)
    work.end()
    print(work.done)


def test_both_are_killed_under_load(new_server, load):
    server = new_server()
    work = load(server)

    def kill(number):
        pids = [server.process.pid, until(server.boxhost_pid), until(server.supervisor_pid)]
        for pid in pids if number % 2 else reversed(pids):
            os.kill(pid, signal.SIGKILL)
        server.kill()
        server.start()

    random_rounds(server, work, 8, kill)
    work.end()
    print(work.done)


def test_the_supervisor_alone_is_killed(new_server):
    """Boxes can no longer be made then, and the server says so; a restart heals it."""
    server = new_server()
    client = server.client()
    box = client.start(size="small")
    boxhost = server.boxhost_pid()
    os.kill(server.supervisor_pid(), signal.SIGKILL)
    assert client.exec(box, "echo works")["stdout"] == "works\n"
    server.stop()
    until(lambda: not os.path.exists(f"/proc/{boxhost}"))
    server.start()
    assert client.exec(box, "echo works")["stdout"] == "works\n"
    client.stop(client.start(size="small"))


def test_a_graceful_stop_lets_calls_end(new_server):
    server = new_server()
    client = server.client()
    box = client.start(size="small")
    said = {}

    def call(name, seconds):
        try:
            said[name] = client.exec(box, f"touch {name}; sleep {seconds}; echo {name} done", execId=name)
        except BROKEN as error:
            said[name] = error

    threads = [threading.Thread(target=call, args=arguments, daemon=True) for arguments in (("short", 3), ("long", 600))]
    for thread in threads:
        thread.start()
    until(lambda: client.exec(box, "ls short long")["exitCode"] == 0)
    assert server.stop() == 0
    for thread in threads:
        thread.join(30)
    assert said["short"]["stdout"] == "short done\n", "what ends in time is answered"
    assert not (server.state / "server.json").exists()
    server.start()
    waited = client.tool("sandbox_procs", {"id": box, "action": "wait", "bgId": "long", "timeoutSec": 1})
    assert waited["running"] is True, "a stop of the server ends no command"
    assert client.exec(box, "pgrep -fxc 'sleep 600'")["stdout"] == "1\n"
    client.exec(box, "pkill -fx 'sleep 600'")
    assert "long done" in client.tool("sandbox_procs", {"id": box, "action": "wait", "bgId": "long", "timeoutSec": 30})["stdout"]


def test_a_command_outlives_the_server_and_its_result_is_there(new_server):
    server = new_server()
    client = server.client()
    box = client.start(size="small")

    def call():
        try:
            client.exec(box, "echo before; touch began; sleep 1; echo after >&2; exit 5", execId="across")
        except BROKEN:
            pass

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    until(lambda: client.exec(box, "ls began")["exitCode"] == 0)
    server.kill()
    thread.join(30)
    server.start()
    result = client.tool("sandbox_procs", {"id": box, "action": "wait", "bgId": "across", "timeoutSec": 30})
    assert (result["exitCode"], result["stdout"], result["stderr"]) == (5, "before\n", "after\n")
    step = next(step for step in client.tool("sandbox_status", {"id": box})["steps"] if step.get("execId") == "across")
    assert "restarted" in step["error"] and "running" not in step


def test_a_session_and_links_survive(new_server):
    server = new_server()
    client = server.client(agent="conversation")
    box = client.start(size="small")
    client.exec(box, "echo kept > file")
    link = client.tool("sandbox_get", {"id": box, "path": "file"})["url"]
    assert client.session
    server.kill()
    server.start()
    assert client.tool("sandbox_status", {"id": box})["agent"]["thisConversation"] is True
    assert client.fetch(link)[2] == b"kept\n"
    stranger = server.client(initialize=False)
    stranger.session = client.session[:-1] + ("a" if client.session[-1] != "a" else "b")
    with pytest.raises(McpError) as error:
        stranger.request("ping").result
    assert error.value.status == 404 or "404" in str(error.value)


def test_two_servers_do_not_touch_each_other(new_server):
    one, two = new_server(), new_server()
    first, second = one.client(), two.client()
    mine, theirs = first.start(size="small"), second.start(size="small")
    first.exec(mine, "sleep 801", background=True)
    second.exec(theirs, "sleep 802", background=True)
    assert [row["id"] for row in first.tool("sandbox_list", {})["boxes"]] == [mine]
    assert first.exec(theirs, "true").is_error and first.stop(theirs).is_error
    for _ in range(3):
        two.kill()
        os.kill(until(one.boxhost_pid), signal.SIGKILL)
        two.start()
        until(lambda: one.get("/readyz")[0] == 200)
    for client, box, seconds in ((first, mine, 801), (second, theirs, 802)):
        assert client.exec(box, f"pgrep -fxc 'sleep {seconds}'")["stdout"] == "1\n"
    second.stop(theirs)
    two.stop()
    subprocess.run([str(programs() / "boxhost"), "--cleanup", "--state", str(two.state)], check=True, timeout=60)
    assert first.exec(mine, "pgrep -fxc 'sleep 801'")["stdout"] == "1\n"
    assert not first.stop(mine).is_error


def test_a_second_server_on_the_same_state_is_refused(new_server):
    server = new_server()
    done = subprocess.run([str(programs() / "parallelsandbox"), "serve", "--state", str(server.state), "--listen", "127.0.0.1:0"],
                          capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "another server" in done.stderr and str(server.state) in done.stderr
    assert done.stdout == ""
    client = server.client()
    assert client.exec(client.start(size="small"), "echo undisturbed")["stdout"] == "undisturbed\n"


def test_an_address_in_use_is_refused(new_server, tmp_path):
    server = new_server()
    done = subprocess.run([str(programs() / "parallelsandbox"), "serve", "--state", str(server.base / "other"), "--listen", f"127.0.0.1:{server.port}"],
                          capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert str(server.port) in done.stderr and "in use" in done.stderr.lower()


def test_a_box_whose_first_process_is_killed(new_server):
    server = new_server(arguments=["--max-boxes", "1"])
    client = server.client()
    box = client.start(size="small")
    client.exec(box, "echo file > file")
    os.kill(server.box_pid(box), signal.SIGKILL)
    row = until(lambda: next((row for row in client.tool("sandbox_list", {})["boxes"] if row["id"] == box and row["status"] != "running"), None))
    assert row["status"] == "lost" and "kill" in row["statusReason"]
    status = client.tool("sandbox_status", {"id": box})
    assert status["status"] == "lost" and status["statusReason"] == row["statusReason"]
    result = client.exec(box, "true")
    assert result.is_error and "lost" in result.text and box in result.text
    assert client.rest("POST", f"/v1/boxes/{box}/sync?dest=d", b"")[0] == 409
    other = client.start(size="small")  # it takes up no room
    assert not client.stop(box).is_error
    assert server.boxes_on_disk() == {other}
    # and the same while no server looks
    pid = server.box_pid(other)
    server.kill()
    os.kill(pid, signal.SIGKILL)
    server.start()
    row = next(row for row in client.tool("sandbox_list", {})["boxes"] if row["id"] == other)
    assert row["status"] == "lost" and row["statusReason"]
    assert not client.stop(other).is_error
