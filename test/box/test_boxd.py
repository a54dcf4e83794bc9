"""The real boxd in fresh namespaces: every promise of docs/guest-protocol.md that a box's user could break.

Needs root (or user namespaces). Run: BOXD=build/bin/boxd pytest test/box/test_boxd.py
"""

import base64
import gzip
import hashlib
import io
import json
import os
import socket
import tarfile
import threading
import time

import pytest

from guestproto import (CONTROL, DATA, HEADER, STDIN, Box, boxd_path, entry, wait_until)


def sanitized():
    with open(boxd_path(), "rb") as f:
        return b"__asan_init" in f.read()


plain_only = pytest.mark.skipif(sanitized(), reason="memory is measured without sanitizers")


@pytest.fixture(scope="module")
def box():
    with Box() as b:
        yield b
        assert b.alive()


@pytest.fixture
def fresh():
    with Box() as b:
        yield b
        assert b.alive()


def sh(box, cmd, **fields):
    r = box.exec(cmd, **fields)
    assert r["exitCode"] == 0, (cmd, dict(r), r.stderr)
    return r.stdout.decode("utf-8", "surrogateescape")


def process_count(box):
    return int(sh(box, "ls -d /proc/[0-9]* | wc -l"))


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
    assert rss <= 1100, rss


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


# ---------------------------------------------------------------- put

def tar_of(*members, fmt=tarfile.PAX_FORMAT):
    """Members: (name, bytes) or (name, dict of TarInfo fields [, bytes])."""
    f = io.BytesIO()
    with tarfile.open(fileobj=f, mode="w", format=fmt, errors="surrogateescape", encoding="utf-8") as t:
        for m in members:
            info = tarfile.TarInfo(m[0])
            info.mode = 0o644
            body = m[1] if isinstance(m[1], bytes) else m[2] if len(m) > 2 else b""
            if isinstance(m[1], dict):
                for k, v in m[1].items():
                    setattr(info, k, v)
            info.size = len(body)
            t.addfile(info, io.BytesIO(body))
    return f.getvalue()


def link(target):
    return {"type": tarfile.SYMTYPE, "linkname": target}


def hard(target):
    return {"type": tarfile.LNKTYPE, "linkname": target}


def test_put_and_get_round_trip(box):
    members = [("d", {"type": tarfile.DIRTYPE, "mode": 0o755}), ("d/a.txt", b"hello"), ("d/run.sh", {"mode": 0o755}, b"#!/bin/sh\n"),
               ("d/l", link("a.txt")), ("d/dangling", link("/nowhere/at/all")), ("d/empty", b""),
               ("d/" + "long/" * 60 + "x" * 200, b"deep"), ("d/._a.txt", b"apple double"), ("d/日本語 \n\t.txt", b"unicode")]
    r = box.put("rt", tar_of(*members))
    assert "error" not in r and r["files"] == 8 and r["changed"] == 8 and r["refused"] == [], dict(r)
    assert sh(box, "cd rt/d; cat a.txt l; readlink dangling; ./run.sh; stat -c %a a.txt run.sh") == \
        "hellohello/nowhere/at/all\n644\n755\n"
    for gz in (True, False):
        r = box.get("rt/d", gzip=gz)
        assert r.events[0]["type"] == "dir" and r.events[0]["name"] == "d" and not r["changedWhileReading"]
        assert r["bytes"] == len(r.data)
        with tarfile.open(fileobj=io.BytesIO(r.data)) as t:
            names = t.getnames()
            assert names[0] == "d" and "d/日本語 \n\t.txt" in names and "d/" + "long/" * 60 + "x" * 200 in names
            assert t.extractfile("d/a.txt").read() == b"hello"
            assert t.getmember("d/dangling").linkname == "/nowhere/at/all"
            assert t.getmember("d/run.sh").mode == 0o755
    r = box.get("rt/d/a.txt")
    assert r.data == b"hello" and r.events[0]["type"] == "file" and r.events[0]["size"] == 5


def test_names_that_are_no_utf8(box):
    name = b"n/\xff\xfe\x80 x".decode("utf-8", "surrogateescape")
    for fmt in (tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT):
        r = box.put("raw", tar_of((name, b"raw"), (name + "y" * 150, b"long") if fmt != tarfile.USTAR_FORMAT else ("n/z", b""),
                                  fmt=tarfile.GNU_FORMAT if fmt == tarfile.PAX_FORMAT else fmt))
        assert "error" not in r and r["refused"] == []
    assert b"\xff\xfe\x80 x" in box.exec("ls raw/n").stdout
    assert box.diff("raw", [entry(b"n/\xff\xfe\x80 x", b"raw")]).need == []
    r = box.get("raw")
    with tarfile.open(fileobj=io.BytesIO(r.data), encoding="utf-8", errors="surrogateescape") as t:
        assert "raw/" + name in t.getnames()
    assert box.op("prune", _data=b"n/\xff\xfe\x80 x\0", dest="raw")["pruned"] == 1


def test_unchanged_files_are_left_alone(box):
    t = tar_of(("keep/a", b"same"), ("keep/b", b"x" * 400000), ("keep/s", link("a")))
    box.put("un", t)
    before = sh(box, "sleep 0.05; stat -c '%n %i %Y.%y %z' un/keep/*")
    r = box.put("un", gzip.compress(t))
    assert r["changed"] == 0 and r["files"] == 3
    assert sh(box, "stat -c '%n %i %Y.%y %z' un/keep/*") == before
    r = box.put("un", tar_of(("keep/a", b"SAME"), ("keep/b", b"x" * 399999 + b"y"), ("keep/s", link("b"))))
    assert r["changed"] == 3
    assert sh(box, "cat un/keep/a; tail -c 2 un/keep/b; readlink un/keep/s; ls -A un/keep | wc -l") == "SAMExyb\n3\n"
    r = box.put("un", tar_of(("keep/a", {"mode": 0o755}, b"SAME")))
    assert r["changed"] == 1 and sh(box, "stat -c %a un/keep/a") == "755\n"


def test_setuid_is_stripped_and_owner_is_root(box):
    box.put("su", tar_of(("x", {"mode": 0o6755, "uid": 1234, "gid": 1234}, b"#!"),
                         ("d", {"type": tarfile.DIRTYPE, "mode": 0o7777})))
    assert sh(box, "stat -c '%a %u %g' su/x") == "755 0 0\n"
    assert sh(box, "stat -c '%a' su/d") == "777\n"


def hostile_state(box):
    return sh(box, "find /work/outside.txt /work/victim /etc /tmp /dev/shm -printf '%p %y %m %s %n %l\\n' 2>/dev/null | sort; "
                   "cat /work/outside.txt /work/victim/secret; stat -c '%Y %Z' /work/outside.txt")


HOSTILE = {
    "dotdot": [("../outside.txt", b"evil")],
    "dotdot inside": [("a/../../outside.txt", b"evil")],
    "absolute": [("/work/outside.txt", b"evil"), ("/etc/evil", b"evil")],
    "link then file": [("l", link("/work/victim")), ("l/secret", b"evil")],
    "link then dir": [("l", link("../victim")), ("l/", {"type": tarfile.DIRTYPE}), ("l/x/y", b"evil")],
    "link to file then file": [("l", link("../outside.txt")), ("l", b"evil")],
    "hard link out": [("h", hard("/work/outside.txt")), ("h", b"evil")],
    "hard link dotdot": [("h", hard("../outside.txt")), ("h", b"evil")],
    "hard link through link": [("l", link("..")), ("h", hard("l/outside.txt")), ("h", b"evil")],
    "hard link to link": [("l", link("../outside.txt")), ("h", hard("l")), ("h", b"evil")],
    "two-step": [("a", link(".")), ("a/b", link("..")), ("a/b/outside.txt", b"evil")],
    "chain": [("x", link("y")), ("y", link("../victim")), ("x/secret", b"evil")],
    "dot link": [("d", link("..")), ("d/../outside.txt", b"evil")],
    "deep": [("/".join(["d"] * 600), b"evil")],
}


@pytest.mark.parametrize("name", sorted(HOSTILE))
def test_hostile_archives_change_nothing_outside(box, name):
    dest = "hostile-" + name.replace(" ", "-")
    sh(box, "mkdir -p victim; echo precious > victim/secret; echo precious > outside.txt; sleep 0.02")
    before = hostile_state(box)
    r = box.put(dest, tar_of(*HOSTILE[name]) if name != "deep" else tar_of(*HOSTILE[name], fmt=tarfile.GNU_FORMAT))
    assert hostile_state(box) == before
    if name not in ("link to file then file", "hard link to link"):
        assert r["refused"], dict(r)
    if name not in ("link to file then file", "deep", "hard link to link"):
        assert r["code"] == "EXDEV" and r["error"]
    # and the same in two uploads, one member each time
    for m in HOSTILE[name]:
        box.put(dest + "-2", tar_of(m, fmt=tarfile.GNU_FORMAT))
    assert hostile_state(box) == before


def test_dest_that_is_a_link(box):
    sh(box, "ln -sfn victim destlink; ln -sfn /etc destout; mkdir -p victim")
    before = hostile_state(box)
    for dest in ("destlink", "destout", "destout/x", "../x", "/etc", "a//b", "./a", ""):
        r = box.put(dest, tar_of(("evil", b"evil")))
        assert ("error" in r) == (dest != ""), (dest, dict(r))
    assert hostile_state(box) == before
    sh(box, "rm -f /work/evil")


def test_devices_are_refused_and_the_rest_goes_on(box):
    members = [("ok1", b"1"), ("chr", {"type": tarfile.CHRTYPE, "devmajor": 1, "devminor": 3}),
               ("blk", {"type": tarfile.BLKTYPE, "devmajor": 8}), ("fifo", {"type": tarfile.FIFOTYPE}), ("ok2", b"2")]
    r = box.put("dev", tar_of(*members))
    assert "error" not in r and [x["path"] for x in r["refused"]] == ["chr", "blk", "fifo"]
    assert sh(box, "ls -A dev") == "ok1\nok2\n"


def test_what_is_in_the_way(box):
    sh(box, "rm -rf way; mkdir -p way/dir/sub way/empty; echo f > way/file; ln -s /etc way/link; echo x > way/dir/sub/x; "
            "mkfifo way/fifo")
    r = box.put("way", tar_of(("file/in", b"1"), ("link/in", b"2"), ("dir", b"3"), ("empty", b"4"), ("fifo", b"5")))
    assert "error" not in r and [x["path"] for x in r["refused"]] == ["dir"], dict(r)
    assert sh(box, "cat way/file/in way/link/in way/empty way/fifo; ls /etc/in 2>/dev/null; true") == "1245"
    r = box.put("way", tar_of(("dir", b"3")), replaceDirs=True)
    assert "error" not in r and sh(box, "cat way/dir") == "3"
    r = box.put("way", tar_of(("file", link("elsewhere"))), replaceDirs=True)
    assert "error" not in r and sh(box, "readlink way/file") == "elsewhere\n"


def test_hard_links_within_the_archive(box):
    r = box.put("hl", tar_of(("a", b"one"), ("sub/b", hard("a")), ("gone", hard("nothing"))))
    assert "error" not in r and [x["path"] for x in r["refused"]] == ["gone"]
    assert sh(box, "stat -c %h hl/a hl/sub/b") == "2\n2\n"
    sh(box, "echo precious > /work/out2; ln -f /work/out2 hl/shared")
    box.put("hl", tar_of(("shared", {"mode": 0o755}, b"precious\n")))
    assert sh(box, "stat -c '%a %h' /work/out2") == "644 1\n"
    box.put("hl", tar_of(("a", b"two")))
    assert sh(box, "cat hl/sub/b") == "one"


def test_single_file(box):
    r = box.put("single/deep/name.txt", tar_of(("whatever", b"content")), single=True)
    assert "error" not in r and sh(box, "cat single/deep/name.txt") == "content"
    r = box.put("single/n2", tar_of(("a", b"1"), ("b", b"2")), single=True)
    assert [x["path"] for x in r["refused"]] == ["b"] and sh(box, "cat single/n2; ls single") == "1deep\nn2\n"


@pytest.mark.parametrize("data, word", [
    (b"this is no tar" * 100, "checksum"), (b"\x1f\x8b" + b"junk" * 100, "gzip"), (b"x", "cut off"),
    (tar_of(("a", b"x" * 5000))[:2000], "cut off"), (gzip.compress(tar_of(("a", b"x" * 5000)))[:-5], "cut off"),
])
def test_damaged_archives(box, data, word):
    r = box.put("damaged", data)
    assert r["code"] == "EPROTO" and word in r["error"], dict(r)
    assert sh(box, "cd damaged; stat -c %s a 2>/dev/null; ls -A | grep -c part; true") in ("0\n", "5000\n0\n")


def test_concatenated_gzip_members_and_one_byte_frames(box):
    t = tar_of(("cat/a", b"x" * 3000), ("cat/b", b"y" * 3000))
    r = box.put("gzcat", gzip.compress(t[:700]) + gzip.compress(t[700:]) + b"\0" * 100)
    assert "error" not in r and r["files"] == 2
    c = box.connect()
    c.head("put", dest="bytes", format="tar")
    c.send_stream(DATA, t[:3000], piece=1)
    c.close()
    c = box.connect()
    c.head("put", dest="bytes", format="tar")
    c.send_stream(DATA, gzip.compress(t), piece=1)
    assert c.result()["files"] == 2
    assert box.put("nothing", b"")["files"] == 0


@pytest.mark.parametrize("cut", [100, 700, 300_000, 1_500_000])
def test_client_that_vanishes_mid_upload(box, cut):
    sh(box, "rm -rf vanish; mkdir vanish; echo old > vanish/b")
    t = tar_of(("a", b"a" * 100), ("b", os.urandom(1_000_000)), ("c", os.urandom(1_000_000)), ("d", b"d"))
    c = box.connect()
    c.head("put", dest="vanish", format="tar")
    for i in range(0, cut, 100_000):
        c.send(DATA, t[i:min(cut, i + 100_000)])
    c.close()
    assert wait_until(lambda: ".part" not in sh(box, "sleep 0.05; ls -A vanish"))
    sizes = dict(x.split() for x in sh(box, "cd vanish; stat -c '%n %s' *").splitlines())
    assert all(int(v) in ({"a": [100], "b": [4, 1_000_000], "c": [1_000_000], "d": [1]}[k]) for k, v in sizes.items()), sizes


# ---------------------------------------------------------------- get

def test_get_refuses_what_leads_out_or_is_no_file(box):
    sh(box, "mkdir -p g; ln -sfn /etc/passwd g/out; ln -sfn ../../etc/passwd g/out2; echo in > g/in; ln -sfn in g/l; "
            "mkfifo g/fifo 2>/dev/null; ln -sfn loop g/loop; echo t > /tmp/t; echo s > /dev/shm/s; true")
    assert box.get("g/l").data == b"in\n"
    for path in ("g/out", "g/out2", "g/fifo", "g/loop", "g/none", "../etc/passwd", "/etc/passwd"):
        assert "error" in box.get(path), path
    assert box.get("t", root="tmp").data == b"t\n" and box.get("s", root="shm").data == b"s\n"
    assert "error" in box.get("x", root="etc")
    r = box.get("g")
    assert r["skipped"] == ["g/fifo"]
    with tarfile.open(fileobj=io.BytesIO(r.data)) as t:
        assert t.getmember("g/out").issym() and "g/fifo" not in t.getnames()
    assert box.get(".").events[0]["name"] == "work"


def test_get_tells_what_changed_while_it_was_read(box):
    sh(box, "mkdir -p chg; head -c 60000000 /dev/zero > chg/big; echo x > chg/calm")
    c = box.connect()
    c.head("get", path="chg", gzip=False)
    first = c.frame()
    time.sleep(0.2)
    sh(box, "truncate -s 1000 chg/big")
    r = c.result()
    assert r["changedWhileReading"] == ["chg/big"] and json.loads(first[2])["type"] == "dir"
    with tarfile.open(fileobj=io.BytesIO(r.data)) as t:
        assert t.extractfile("chg/calm").read() == b"x\n"
    c.close()


# ---------------------------------------------------------------- diff and prune

def test_diff(box):
    box.put("df", tar_of(("a", b"1"), ("dir/b", {"mode": 0o755}, b"2"), ("l", link("a")), ("extra/e\n", b"3"),
                         ("node_modules/x", b""), (".git/y", b"")))
    good = [entry("a", b"1"), entry("dir/b", b"2", executable=True), entry("l", link="a")]
    r = box.diff("df", good)
    assert r.need == [] and r["entries"] == 3 and r["exists"] and not r["isFile"]
    assert [base64.b64decode(x) for x in r["extras"]] == [b"extra/e\n"] and r["extraCount"] == 1
    bad = [entry("a", b"x"), entry("a/b", b"1"), entry("dir/b", b"2"), entry("l", link="b"), entry("l", b"1"), entry("l/x", b""),
           entry("none", b""), entry("dir", b"1"), entry("x" * 300, b"")]
    assert box.diff("df", bad).need == list(range(len(bad)))
    r = box.diff("df/none", good)
    assert r.need == [0, 1, 2] and not r["exists"]
    r = box.diff("df/a", good)
    assert r["isFile"] and r.need == [0, 1, 2]
    for broken in (b"\x07" * 50, entry("a", b"1")[:-1], entry("../x", b""), entry("/x", b""), entry("a\0b", b"")):
        assert "error" in box.op("diff", _data=broken, dest="df")


def test_diff_never_follows_links(box):
    sh(box, "rm -rf dl; mkdir dl; ln -s /etc dl/etc; ln -s /etc/passwd dl/p")
    passwd = box.exec("cat /etc/passwd").stdout
    assert box.diff("dl", [entry("etc/passwd", passwd), entry("p", passwd)]).need == [0, 1]


def test_digest_cache_sees_edits_within_one_tick(box):
    """git's racy rule: same size, same tick, and still found."""
    body = b"a" * 64
    box.put("racy", tar_of(("f", body)))
    assert box.diff("racy", [entry("f", body)]).need == []
    for i in range(60):
        new = b"%064d" % i
        sh(box, f"printf %s {new.decode()} > racy/f")
        assert box.diff("racy", [entry("f", body)]).need == [0]
        assert box.diff("racy", [entry("f", new)]).need == []
    # written by put, edited at once
    for i in range(40):
        box.put("racy", tar_of(("f", b"%064d" % i)))
        sh(box, "printf %064d 999 > racy/f")
        assert box.diff("racy", [entry("f", b"%064d" % i)]).need == [0], i


def test_damaged_digest_cache_is_harmless(box):
    box.put("dc", tar_of(("f", b"content")))
    assert box.diff("dc", [entry("f", b"content")]).need == []
    for wreck in ("head -c 1000 /dev/urandom", "head -c 96 /dev/zero", "printf PsbxDIG1", "true"):
        sh(box, f"{wreck} > /var/lib/boxd/digests")
        assert box.diff("dc", [entry("f", b"content")]).need == []
        assert box.diff("dc", [entry("f", b"CONTENT")]).need == [0]
    sh(box, "rm -rf /var/lib/boxd; ln -s /etc /var/lib/boxd; true")
    assert box.diff("dc", [entry("f", b"content")]).need == []
    sh(box, "rm -f /var/lib/boxd")


def test_prune(box):
    sh(box, "rm -rf pr; mkdir -p pr/a/b/c pr/keep; touch pr/a/b/c/f pr/keep/x pr/y; ln -s /etc pr/etc; ln -s y pr/ly")
    r = box.op("prune", _data=b"a/b/c/f\0y\0ly\0none\0etc/passwd\0../x\0keep\0", dest="pr")
    assert r["pruned"] == 3
    assert {f["path"] for f in r["failed"]} == {"etc/passwd", "../x", "keep"}
    assert sh(box, "find pr | sort") == "pr\npr/etc\npr/keep\npr/keep/x\n"
    assert "error" in box.op("prune", _data=b"x", dest="pr")


def test_ten_thousand_files(fresh):
    members = [(f"src/d{i // 20:03d}/f{i}", b"%d" % i * 50) for i in range(10000)]
    t = tar_of(*members, fmt=tarfile.GNU_FORMAT)
    plan = [entry(n, b) for n, b in members]
    t0 = time.monotonic()
    assert fresh.put("big", t)["changed"] == 10000
    t1 = time.monotonic()
    assert fresh.diff("big", plan).need == []
    t2 = time.monotonic()
    print(f"put {1000 * (t1 - t0):.0f} ms, diff {1000 * (t2 - t1):.0f} ms")
    sh(fresh, "echo changed > big/src/d000/f7")
    assert fresh.diff("big", plan).need == [7]


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
    assert box.op("dial", port=8457)["code"] == "ECONNREFUSED"
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
