"""The real boxd in fresh namespaces: every promise of docs/guest-protocol.md that a box's user could break.

Needs root (or user namespaces). Run: BOXD=build/bin/boxd pytest test/box/test_boxd.py
"""

import hashlib
import json
import os
import socket
import tarfile
import threading
import time

import pytest

from guestproto import CONTROL, DATA, HEADER, STDIN, Box, wait_until
from boxdbox import box, fresh, plain_only, process_count, sh, tar_of  # noqa: F401 (fixtures)


# ---------------------------------------------------------------- the frames

def test_hello(box):
    r = box.op("hello")
    assert r["version"] == 1 and {"exec", "procs", "put", "get", "diff", "prune", "dial"} <= set(r["ops"])


@pytest.mark.parametrize("raw", [
    HEADER.pack(CONTROL, 0, 0, 3) + b"{]}",
    HEADER.pack(CONTROL, 0, 0, 2) + b"[]",
    HEADER.pack(CONTROL, 0, 0, 0),
    HEADER.pack(DATA, 0, 0, 3) + b"abc",
    HEADER.pack(CONTROL, 0, 0, 1 << 30),
    HEADER.pack(9, 0, 0, 1) + b"x",
    HEADER.pack(CONTROL, 0, 7, 2) + b"{}",
    HEADER.pack(CONTROL, 0, 0, 20) + b'{"v":2,"op":"hello"}',
    HEADER.pack(CONTROL, 0, 0, 20) + b'{"v":1,"op":"nosuch"}'[:20],
    HEADER.pack(CONTROL, 0, 0, 4) + b"\xff\xfe\x00\x01",
])
def test_malformed_heads_get_an_error(box, raw):
    c = box.connect()
    c.sock.sendall(raw)
    r = c.result()
    assert r["error"] and r["code"]
    c.close()
    assert box.op("hello")["version"] == 1


def test_unknown_op(box):
    assert box.op("dance")["code"] == "EOPNOTSUPP"


def test_connection_that_says_nothing_or_half(box):
    idle = [box.connect() for _ in range(50)]
    for c in idle[:25]:
        c.sock.sendall(b"\0\0\0")
    assert box.exec("echo ok").stdout == b"ok\n"
    for c in idle:
        c.close()
    assert box.exec("echo ok").stdout == b"ok\n"


# ---------------------------------------------------------------- exec

@pytest.mark.parametrize("cmd, code, sig", [
    ("true", 0, None), ("false", 1, None), ("exit 77", 77, None), ("nosuchcommand", 127, None),
    ("touch x.txt; ./x.txt", 126, None), ("/work", 126, None),
    ("kill -9 $$", 137, "SIGKILL"), ("kill -TERM $$", 143, "SIGTERM"), ("kill -SEGV $$", 139, "SIGSEGV"),
    ("bash -c 'kill -9 $$'; exit $?", 137, None), ("exec true", 0, None), ("exec nosuch", 127, None),
    ("kill -35 $$", 163, "SIGRTMIN+1"),
])
def test_exit_codes(box, cmd, code, sig):
    r = box.exec(cmd)
    assert r["exitCode"] == code and r.get("signal") == sig, dict(r)
    assert not r["timedOut"] and not r["oomKilled"]


def test_sigkill_is_told_when_it_was_none_of_ours(box):
    assert box.exec("kill -9 $$")["sigkill"]
    assert box.exec("sleep 9 & kill -9 $!; wait $!")["sigkill"]
    assert not box.exec("true")["sigkill"]
    assert not box.exec("sleep 30", timeoutMs=50)["sigkill"]


def test_stdout_and_stderr_apart_and_exact(box):
    blob = bytes(range(256)) * 4000
    r = box.put(".", tar_of(("blob", blob)))
    assert "error" not in r
    r = box.exec("cat blob; cat blob blob >&2")
    assert r.stdout == blob and r.stderr == blob + blob
    assert r["stdoutBytes"] == len(blob) and r["stderrBytes"] == 2 * len(blob)
    assert r.ended == {2, 3}


def test_sixty_four_mib_in_one_write(box):
    code = "import os; b=bytes(range(256))*262144; n=0\nwhile n<len(b): n+=os.write(1,b[n:])"
    r = box.exec(f"/usr/bin/python3 -c '{code}'")
    assert r["exitCode"] == 0
    assert hashlib.sha256(r.stdout).digest() == hashlib.sha256(bytes(range(256)) * 262144).digest()


def test_back_pressure_reaches_the_job(box):
    """A reader that stops reading stops the job; nothing is lost or mixed when it goes on."""
    c = box.connect()
    c.head("exec", id="bp", cmd="yes abcdefg | head -c 30000000; yes 1234567 | head -c 30000000 >&2")
    time.sleep(0.5)
    jobs = box.procs("list")["jobs"]
    assert any(j["id"] == "bp" and j["running"] for j in jobs)
    r = c.result()
    assert r.stdout == b"abcdefg\n" * 3750000 and r.stderr == b"1234567\n" * 3750000
    c.close()


@plain_only
def test_keeper_memory_stays_small(box):
    c = box.connect()
    c.head("exec", id="mem", cmd="cat /dev/zero")
    time.sleep(0.5)
    rss = sh(box, "for p in /proc/[0-9]*; do grep -q '^Name:.boxd\\|^Name:.9' $p/status && grep VmRSS $p/status; done; true")
    assert all(int(line.split()[1]) < 3000 for line in rss.splitlines()), rss
    c.close()
    box.procs("stop", id="mem")


def test_stdin(box):
    data = os.urandom(3_000_000)
    assert box.exec("cat", stdin=data).stdout == data
    assert box.exec("head -c 10", stdin=data).stdout == data[:10]
    assert box.exec("cat; echo over").stdout == b"over\n"
    assert box.exec("true", stdin=b"x" * 500000)["exitCode"] == 0


def test_cwd_and_env(box):
    sh(box, "mkdir -p a/b; ln -sfn a/b inside; ln -sfn /etc outside")
    assert sh(box, "pwd", cwd="a/b") == "/work/a/b\n"
    assert sh(box, "pwd -P", cwd="inside") == "/work/a/b\n"
    assert box.exec("pwd", cwd="outside")["code"] == "EXDEV"
    r = box.exec("pwd", cwd="a/none")
    assert r["code"] == "ENOENT" and r["error"].startswith("cwd: ")
    assert box.exec("pwd", cwd="../etc")["code"] == "EXDEV"
    assert sh(box, 'echo "$A-$HOME"', env={"A": "x y\nz"}) == "x y\nz-/root\n"
    assert "env" in box.exec("true", env={"A=B": "x"})["error"]
    assert "env" in box.exec("true", env={"A": 3})["error"]
    box.op("env", set={"LATER": "1", "PATH2": "x"})
    assert sh(box, "echo $LATER") == "1\n"
    box.op("env", unset=["LATER"])
    assert sh(box, "echo $LATER$PATH2") == "x\n"


def test_bad_arguments(box):
    assert "`cmd` is required" in box.op("exec", id="q1")["error"]
    assert "id" in box.op("exec", cmd="true", id="no spaces")["error"]
    assert box.op("exec", cmd="true\0x", id="q2")["code"] == "EINVAL"
    assert box.op("exec", cmd="x" * 200000, id="q3")["code"] == "E2BIG"
    box.exec("true", id="twice")
    assert box.exec("true", id="twice")["code"] == "EEXIST"


def test_big_environment_is_refused_in_words(box):
    r = box.exec("true", env={f"V{i}": "x" * 1000 for i in range(200)})
    assert r.get("exitCode") == 0 or r["code"] == "E2BIG"


def test_command_that_closes_its_output_or_leaves_children(box):
    t = time.monotonic()
    r = box.exec("exec >&- 2>&-; sleep 0.3; exit 5")
    assert r["exitCode"] == 5
    r = box.exec("sleep 100 & echo done")
    assert r["exitCode"] == 0 and r.stdout == b"done\n" and r["leftRunning"]
    assert time.monotonic() - t < 3
    left = [j for j in box.procs("list")["jobs"] if j["running"] and j["cmd"].startswith("sleep 100 &")]
    assert left and left[0]["processes"] == 1 and left[0]["exitCode"] == 0
    assert not box.procs("stop", id=left[0]["id"])["running"]


def test_output_after_the_leader_is_kept(box):
    r = box.exec("(sleep 0.6; echo late) & echo early", id="late")
    assert r.stdout == b"early\n"
    assert wait_until(lambda: box.procs("wait", id="late").stdout == b"early\nlate\n")


def test_bytes_in_the_pipe_at_exit_are_not_lost(box):
    for _ in range(20):
        r = box.exec("sleep 5 & head -c 60000 /dev/zero; head -c 60000 /dev/zero >&2")
        assert (r["stdoutBytes"], r["stderrBytes"]) == (60000, 60000) and len(r.stdout) == len(r.stderr) == 60000


# ---------------------------------------------------------------- trees

TREE = """
python3 - <<'E'
import os, time
def daemon(depth):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.setsid()
            if depth: daemon(depth - 1)
            time.sleep(1000)
        os._exit(0)
daemon(3)
E
setsid sleep 1001 & (setsid bash -c 'trap "" TERM HUP INT; setsid sleep 1002; sleep 1003' &) ; sleep 1004
"""


def sleepers(box):
    return int(sh(box, "grep -l 'sleep\\|python3' /proc/[0-9]*/comm 2>/dev/null | wc -l"))


def test_timeout_ends_the_whole_tree(fresh):
    r = fresh.exec(TREE, timeoutMs=700)
    assert r["timedOut"] and r["exitCode"] == 137 and r["signal"] == "SIGKILL"
    assert sleepers(fresh) == 0
    assert r["durationMs"] < 3000


def test_stop_ends_the_whole_tree_and_no_other(fresh):
    fresh.exec("sleep 555", id="other", background=True)
    fresh.exec(TREE, id="tree", background=True)
    assert wait_until(lambda: sleepers(fresh) >= 7)
    r = fresh.procs("stop", id="tree")
    assert not r["running"] and r["endReason"] == "stopped"
    assert sleepers(fresh) == 1
    assert [j["id"] for j in fresh.procs("list")["jobs"] if j["running"]] == ["other"]
    assert not fresh.procs("stop", id="other")["running"]
    assert sleepers(fresh) == 0
    assert fresh.procs("stop", id="tree")["endReason"] == "stopped"


def test_stop_lets_a_program_clean_up(box):
    box.exec("trap 'echo bye; exit 3' TERM; while :; do sleep 0.05; done", id="polite", background=True)
    time.sleep(0.2)
    box.procs("stop", id="polite", graceMs=3000)
    r = box.procs("wait", id="polite")
    assert r.stdout == b"bye\n" and r["exitCode"] == 3 and r["endReason"] == "stopped"


def test_ten_thousand_orphans_leave_no_zombie(fresh):
    code = """
import os
for i in range(10000):
    if os.fork() == 0:
        if os.fork() == 0:
            os._exit(0)
        os._exit(0)
    os.wait()
"""
    t = time.monotonic()
    assert fresh.exec(f"python3 -c '{code}'", timeoutMs=60000)["exitCode"] == 0
    assert wait_until(lambda: int(sh(fresh, "grep -l '^State:.Z' /proc/[0-9]*/status 2>/dev/null | wc -l")) == 0, 5)
    assert time.monotonic() - t < 60


def test_fork_bomb_can_be_stopped():
    with Box(pids=300) as b:
        if not b.cgroup:
            pytest.skip("no pids cgroup to be had here")
        b.exec(":(){ :|:& };:", id="bomb")
        time.sleep(1)
        r = b.exec("true", id="during")
        if "error" in r:
            assert r["code"] == "EAGAIN" and "limit" in r["error"]
        assert [j["id"] for j in b.procs("list")["jobs"] if j["running"]][0] == "bomb"
        r = b.procs("stop", id="bomb", _timeout=30)
        assert "error" not in r, dict(r)
        assert wait_until(lambda: b.exec("echo ok").stdout == b"ok\n")
        assert process_count(b) < 12


@pytest.mark.parametrize("cmd", ["kill -9 -1", "kill -9 -1; echo still here; exit 4", "bash -c 'kill -9 -1'; echo no",
                                 "setsid kill -9 -1 & sleep 100"])
def test_killing_everything(fresh, cmd):
    fresh.exec("sleep 556", id="victim", background=True)
    other = fresh.connect()
    other.head("exec", id="fg", cmd="echo before; sleep 557")
    time.sleep(0.3)
    r = fresh.exec(cmd, id="killer")
    assert r["exitCode"] in (137, 4) and "endReason" in r or r.get("signal") == "SIGKILL", dict(r)
    r = other.result()
    assert r["signal"] == "SIGKILL" and r.stdout == b"before\n" and r["endReason"].startswith("killed")
    assert wait_until(lambda: sleepers(fresh) == 0)
    jobs = {j["id"]: j for j in fresh.procs("list", all=True)["jobs"]}
    assert not jobs["victim"]["running"] and jobs["victim"]["endReason"].startswith("killed")
    assert fresh.procs("wait", id="killer")["running"] is False
    assert fresh.exec("echo alive").stdout == b"alive\n"


def test_stopping_and_terminating_everything(fresh):
    r = fresh.exec("kill -STOP -1; kill -TERM 1; kill -INT 1; kill -HUP 1; kill -USR1 1; kill -9 1; kill -CONT -1; echo ok")
    assert r.stdout == b"ok\n"


def test_pid_1_cannot_be_traced_or_opened(box):
    """A box's root has no CAP_SYS_PTRACE; here it is dropped for the attempt."""
    drop = "setpriv --bounding-set=-sys_ptrace --inh-caps=-sys_ptrace "
    for what in ("ls -l /proc/1/fd/", "cat /proc/1/environ", "cat /proc/1/maps", "head -c 1 /proc/1/mem", "cat /proc/1/fd/3"):
        r = box.exec(drop + what)
        assert r["exitCode"] != 0 and b"denied" in r.stderr.lower(), (what, dict(r), r.stdout, r.stderr)
    assert b"denied" not in box.exec(drop + "cat /proc/$$/maps").stderr.lower()


# ---------------------------------------------------------------- background, waiting, loss of the connection

def test_background_and_wait(box):
    r = box.exec("echo start; sleep 0.4; echo end; exit 9", id="bg1", background=True)
    assert r["bgId"] == "bg1"
    r = box.procs("wait", id="bg1", timeoutMs=50)
    assert r["running"] and not r["over"] and r.stdout == b"start\n"
    r = box.procs("wait", id="bg1", timeoutMs=5000)
    assert r["over"] and r["exitCode"] == 9 and r.stdout == b"start\nend\n" and r["endReason"] == "exited"
    again = box.procs("wait", id="bg1")
    assert again["exitCode"] == 9 and again.stdout == b"start\nend\n"


def test_unknown_job(box):
    for action in ("wait", "stop", "input", "output"):
        assert box.procs(action, id="nosuch")["code"] == "ENOENT"
    assert box.procs("dance", id="bg1")["code"] in ("EINVAL", "ENOENT")


def test_wait_until_ready(box):
    box.exec("python3 -c 'import socket,time; time.sleep(0.4); s=socket.socket(); s.bind((\"0.0.0.0\",8123)); s.listen(); "
             "print(\"lis\",end=\"\",flush=True); time.sleep(.2); print(\"tening\",flush=True); time.sleep(60)'",
             id="srv", background=True)
    r = box.procs("wait", id="srv", until={"port": 8123}, timeoutMs=8000)
    assert r["ready"] and r["running"]
    r = box.procs("wait", id="srv", until={"log": "listening"}, timeoutMs=8000)
    assert r["ready"] and r.stdout == b"listening\n"
    assert box.procs("wait", id="srv", until={"log": "listening"}, timeoutMs=1)["ready"]
    assert not box.procs("wait", id="srv", until={"port": 9}, timeoutMs=60)["ready"]
    box.procs("stop", id="srv")
    r = box.procs("wait", id="srv", until={"log": "listening"}, timeoutMs=1)
    assert r["ready"] and not r["running"]


def test_output_kept_when_the_connection_is_lost(box):
    c = box.connect()
    c.head("exec", id="lost", cmd="echo one; sleep 0.5; echo two; seq 1 100000; echo e >&2; exit 6")
    assert c.frame()[0] == CONTROL
    c.close()
    r = box.procs("wait", id="lost", timeoutMs=10000)
    assert r["exitCode"] == 6 and r["over"]
    full = b"one\ntwo\n" + b"".join(b"%d\n" % i for i in range(1, 100001))
    assert r["stdoutBytes"] == len(full) and r.stderr == b"e\n"
    assert r.stdout == full[:r["stdoutOmittedAt"]] + full[r["stdoutOmittedAt"] + r["stdoutOmitted"]:]
    out = box.procs("output", id="lost", stream="stdout")
    assert out.stdout == full and out["bytes"] == len(full) and out["omitted"] == []
    tail = box.procs("wait", id="lost", tail=2)
    assert tail.stdout == b"99999\n100000\n"
    assert box.procs("wait", id="lost", maxBytes=0).stdout == b""


def test_background_output_beyond_the_limit(fresh):
    mib = 70
    fresh.exec(f"yes 0123456789abcde | head -c {mib << 20}; echo THE END", id="huge", background=True)
    r = fresh.procs("wait", id="huge", timeoutMs=60000)
    assert r["stdoutBytes"] == (mib << 20) + 8 and r.stdout.endswith(b"THE END\n") and r.stdout.startswith(b"0123456789abcde\n")
    out = fresh.procs("output", id="huge", _timeout=60)
    assert len(out.stdout) == out["kept"] and out.stdout.endswith(b"THE END\n")
    assert out["kept"] + sum(o["bytes"] for o in out["omitted"]) == out["bytes"]
    assert out["omitted"][0]["at"] == 64 << 20


def test_input(box):
    box.exec("while read -r line; do echo got $line; done; echo eof", id="inp", background=True, stdin=b"")
    # a background job with stdin keeps it open for input
    c = box.connect()
    c.head("exec", id="inp2", cmd="while read -r line; do echo got $line; done; echo eof", background=True, stdin=True)
    assert c.result()["bgId"] == "inp2"
    c.close()

    def send(data, **f):
        c = box.connect()
        c.head("procs", action="input", id="inp2", **f)
        c.try_send_stream(STDIN, data)
        r = c.result()
        c.close()
        return r
    assert send(b"hello\n")["bytes"] == 6
    assert wait_until(lambda: box.procs("wait", id="inp2", timeoutMs=1).stdout == b"got hello\n")
    assert send(b"world\n", close=True)["bytes"] == 6
    r = box.procs("wait", id="inp2", timeoutMs=5000)
    assert r.stdout == b"got hello\ngot world\neof\n" and r["exitCode"] == 0
    assert send(b"x")["code"] == "EPIPE"


@plain_only
def test_many_ended_jobs_keep_pid_1_small(fresh):
    big = "x" * 60000
    for i in range(260):
        fresh.exec(f"echo {i}; echo {big} | head -c 40000", id=f"m{i}")
    jobs = fresh.procs("list", all=True)["jobs"]
    assert len(jobs) == 200 and jobs[0]["id"] == "m259"
    assert fresh.procs("wait", id="m0")["code"] == "ENOENT"
    assert fresh.procs("wait", id="m259").stdout.startswith(b"259\nxxx")
    with open(f"/proc/{fresh.pid1()}/status") as f:
        rss = [int(line.split()[1]) for line in f if line.startswith("VmRSS")][0]
    assert rss < 3000
    assert int(sh(fresh, "ls /var/lib/boxd/jobs | wc -l")) <= 200


@plain_only
def test_idle_memory(fresh):
    fresh.op("hello")
    with open(f"/proc/{fresh.pid1()}/status") as f:
        rss = [int(line.split()[1]) for line in f if line.startswith("VmRSS")][0]
    assert rss <= 1200, rss


def test_full_disk_loses_no_result():
    with Box(work_size="4m", state_size="256k") as b:
        r = b.exec("head -c 8000000 /dev/zero > fill; echo $?", id="fill")
        assert r.stdout == b"1\n" and b"No space" in r.stderr
        b.exec("head -c 5000000 /dev/zero; echo tail", id="bgfull", background=True)
        r = b.procs("wait", id="bgfull", timeoutMs=10000)
        assert r["exitCode"] == 0 and r["stdoutBytes"] == 5000005 and r.stdout.endswith(b"tail\n")
        assert r["stdoutNotKept"] == "ENOSPC"
        # the small state disk is full of spool now: results still come, from memory
        r = b.exec("head -c 30000 /dev/zero | tr '\\0' a; echo end", id="after")
        assert r["exitCode"] == 0
        assert b.procs("wait", id="after").stdout.endswith(b"aend\n")
        r = b.put("up", tar_of(("big", b"x" * 6_000_000)))
        assert r["code"] == "ENOSPC" and "disk" in r["deniedWhy"]
        assert sh(b, "ls -A up") == ""
        r = b.put("up", tar_of(*[(f"f{i}", b"y" * 100_000) for i in range(100)]))
        assert r["code"] == "ENOSPC"
        assert ".part" not in sh(b, "ls -A up")


# ---------------------------------------------------------------- the rest

def test_stat_stats_hosts(box):
    sh(box, "echo hello > st; ln -sfn st stl")
    r = box.op("stat", path="st")
    assert r["type"] == "file" and r["size"] == 6
    assert box.op("stat", path="stl")["type"] == "symlink" and box.op("stat", path=".")["type"] == "dir"
    assert box.op("stat", path="none")["code"] == "ENOENT" and box.op("stat", path="../etc")["code"] == "EINVAL"
    r = box.op("stats")
    assert r["pids"]["used"] >= 1 and r["disk"]["limit"] > 0
    before = sh(box, "grep -v '^#' /etc/hosts")
    box.op("hosts", entries=[{"name": "api", "address": "10.1.2.3"}, {"name": "db", "address": "::1"}])
    assert "10.1.2.3\tapi\n::1\tdb\n" in sh(box, "cat /etc/hosts")
    box.op("hosts", entries=[{"name": "api", "address": "10.9.9.9"}])
    text = sh(box, "cat /etc/hosts")
    assert "10.9.9.9\tapi" in text and "10.1.2.3" not in text and text.count("boxd: begin") == 1
    assert "error" in box.op("hosts", entries=[{"name": "a b", "address": "10.1.1.1"}])
    assert "error" in box.op("hosts", entries=[{"name": "a", "address": "x"}])
    box.op("hosts", entries=[])
    assert sh(box, "grep -v '^#' /etc/hosts") == before


def test_dial(box):
    server = ("import socket\ns=socket.socket(); s.setsockopt(1,2,1); s.bind(('127.0.0.1',8456)); s.listen()\n"
              "while 1:\n c,_=s.accept()\n n=0\n while 1:\n  b=c.recv(65536)\n  if not b: break\n  c.sendall(b); n+=len(b)\n"
              " c.sendall(b'|%d' % n); c.close()")
    box.put(".", tar_of(("echo.py", server.encode())))
    box.exec("python3 echo.py", id="echo", background=True)
    assert box.procs("wait", id="echo", until={"port": 8456}, timeoutMs=9000)["ready"]
    data = os.urandom(3_000_000)
    c = box.connect()
    c.head("dial", port=8456)
    assert json.loads(c.frame()[2]) == {"event": "connected"}
    feeder = threading.Thread(target=c.send_stream, args=(DATA, data))
    feeder.start()
    r = c.result()
    feeder.join()
    assert r.data == data + b"|3000000" and DATA in r.ended
    c.close()
    c = box.connect()
    c.head("dial", port=8456, **{"pass": True})
    frame, fds, _, _ = socket.recv_fds(c.sock, 4096, 4)
    assert json.loads(frame[8:]) == {"passed": True, "done": True} and len(fds) == 1
    direct = socket.socket(fileno=fds[0])
    assert direct.family == socket.AF_INET and direct.proto == socket.IPPROTO_TCP
    assert c.sock.recv(1) == b""  # boxd is out of it
    c.close()
    direct.setblocking(True)
    direct.sendall(b"straight")
    direct.shutdown(socket.SHUT_WR)
    assert b"".join(iter(lambda: direct.recv(100), b"")) == b"straight|8"
    direct.close()
    assert box.op("dial", port=8457)["code"] == "ECONNREFUSED"
    assert box.op("dial", port=8457, **{"pass": True})["code"] == "ECONNREFUSED"
    assert box.op("dial", port=0)["code"] == "EINVAL"
    c = box.connect()
    c.head("dial", port=8456)
    c.frame()
    c.close()
    box.procs("stop", id="echo")


def test_random_bytes_as_heads_and_frames(box):
    import random
    rnd = random.Random(7)
    for i in range(150):
        c = box.connect()
        op = rnd.choice(["exec", "put", "diff", "prune", "get", "procs", "dial", "hosts", "env", "stat"])
        head = {"v": 1, "op": op, "id": f"r{i}", "dest": rnd.choice(["z", 5, None, "../"]), "cmd": rnd.choice(["true", 3, None])}
        c.head(**{k: v for k, v in head.items() if k not in ("v",)})
        c.sock.settimeout(5)
        try:
            c.sock.sendall(HEADER.pack(rnd.choice([STDIN, DATA, 7, CONTROL]), rnd.choice([0, 1, 2]), 0, 20) + rnd.randbytes(20))
            c.sock.shutdown(socket.SHUT_WR)
            while c.sock.recv(65536):
                pass
        except OSError:
            pass
        c.close()
    assert box.exec("echo ok").stdout == b"ok\n"


def test_soak_leaves_nothing_behind(fresh):
    """Many clients at once, half of them rude: afterwards no descriptor, no process, no slot is lost."""
    import random
    pid = fresh.pid1()
    fresh.exec("true")
    before = len(os.listdir(f"/proc/{pid}/fd"))
    errors = []

    def client(seed):
        rnd = random.Random(seed)
        try:
            for i in range(25):
                name = f"s{seed}-{i}"
                kind = rnd.randrange(6)
                if kind == 0:
                    r = fresh.exec(f"echo {name}; exit {i}", id=name)
                    assert r["exitCode"] == i and r.stdout.decode() == name + "\n"
                elif kind == 1:
                    c = fresh.connect()
                    c.head("exec", id=name, cmd="seq 1 20000; sleep 0.05")
                    c.read(rnd.randrange(1, 60000))
                    c.close()
                elif kind == 2:
                    fresh.exec("sleep 0.02; echo x", id=name, background=True)
                    assert fresh.procs("wait", id=name, timeoutMs=20000).stdout == b"x\n"
                elif kind == 3:
                    fresh.exec("setsid sleep 600 & sleep 600", id=name, background=True)
                    assert not fresh.procs("stop", id=name, graceMs=0)["running"]
                elif kind == 4:
                    c = fresh.connect()
                    c.head("put", dest=f"soak{seed}", format="tar")
                    c.send(DATA, tar_of(("a", b"x" * 3000))[:rnd.randrange(4000)])
                    c.close()
                else:
                    assert "jobs" in fresh.procs("list", all=bool(i % 2))
        except Exception as e:  # noqa: BLE001 - whatever it is, the test reports it
            errors.append((seed, repr(e)))

    threads = [threading.Thread(target=client, args=(s,)) for s in range(12)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors, errors[:3]
    assert wait_until(lambda: not [j for j in fresh.procs("list")["jobs"]], 20)
    assert wait_until(lambda: len(os.listdir(f"/proc/{pid}/fd")) <= before, 5), os.listdir(f"/proc/{pid}/fd")
    assert wait_until(lambda: process_count(fresh) <= 5, 5)


def test_silent_connection_is_told_after_ten_seconds(fresh):
    c = fresh.connect()
    c.sock.sendall(b"\0\0\0\0\xff")
    t = time.monotonic()
    assert c.result()["code"] == "ETIMEDOUT"
    assert 9 < time.monotonic() - t < 12


def test_results_stay_within_one_control_frame(fresh):
    nasty = "\\x01" * 900
    for i in range(60):
        fresh.exec("true", id=f"long{i}", note="\x01" * 5000, cwd="./" * 400)
    r = fresh.procs("list", all=True)
    assert r["partial"] and 5 < len(r["jobs"]) < 60
    r = fresh.put("x", tar_of(*[("../" + chr(1) * 400 + str(i), b"") for i in range(300)], fmt=tarfile.GNU_FORMAT))
    assert r["refusedCount"] == 300 and 5 < len(r["refused"]) <= 100 and r["code"] == "EXDEV"
    sh(fresh, f"mkdir -p s; for i in $(seq 150); do mkfifo \"s/$(printf '{nasty[:800]}')$i\"; done")
    r = fresh.get("s")
    assert "error" not in r and 5 < len(r["skipped"]) <= 100
    r = fresh.op("prune", _data=b"".join(b"../" + b"\x01" * 400 + b"%d\0" % i for i in range(300)), dest="s")
    assert r["failedCount"] == 300 and 5 < len(r["failed"]) <= 100
