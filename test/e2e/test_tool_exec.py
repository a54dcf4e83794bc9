"""sandbox_exec: what a command wrote, how it ended, and what it was given."""

import hashlib
import json
import re

import pytest
from mcpclient import gather

TEXT_MAX = 32 << 10


@pytest.fixture(scope="module")
def mine(server):
    """One box for the tests of this file that leave it as it was."""
    client = server.client()
    name = client.start(size="small")

    def run(cmd, note="a test command", **arguments):
        return client.exec(name, cmd, note=note, **arguments)

    run.client, run.box = client, name
    yield run
    client.stop(name)


def whole(run, result):
    """All bytes behind outputUrl, fetched without a key."""
    status, _, data = run.client.fetch(result["outputUrl"])
    assert status == 200
    return data


def test_streams_stay_apart_and_exact(mine):
    result = mine("printf 'out 1\\n\\n\\tout 2'; printf 'err é\\r\\n' >&2; printf ' end '")
    assert result["stdout"] == "out 1\n\n\tout 2 end "
    assert result["stderr"] == "err é\r\n"
    assert result["exitCode"] == 0
    assert result["signal"] is None
    assert result["timedOut"] is False
    assert result["oomKilled"] is False
    assert result["truncated"] is False
    assert "outputUrl" not in result.data
    assert isinstance(result["durationMs"], int)
    assert json.loads(result.content[0]["text"]) == result.raw["structuredContent"]


def test_bytes_that_are_no_utf8(mine):
    result = mine(r"printf 'a\xff\xfeb\x00c\xc3'; printf '\x80' >&2")
    assert result["stdout"].startswith("a\ufffd") and "b\0c" in result["stdout"]
    assert result["stderr"] == "\ufffd"
    assert result["truncated"] is False
    assert whole(mine, result) == b"a\xff\xfeb\0c\xc3"
    status, _, data = mine.client.fetch(result["stderrUrl"])
    assert (status, data) == (200, b"\x80")


def test_a_character_across_the_cut_stays_whole(mine):
    result = mine("python3 -c \"print('€' * 40000, end='')\"")
    assert result["truncated"] is True
    assert "\ufffd" not in result["stdout"]
    assert whole(mine, result) == "€".encode() * 40000


def test_sixty_four_mib_in_one_write(mine):
    script = ("import os, hashlib, sys\n"
              "b = bytes(range(256)) * 4096 * 64\n"
              "sent = 0\n"
              "while sent < len(b):\n"
              "    sent += os.write(1, memoryview(b)[sent:])\n"
              "sys.stderr.write(hashlib.sha256(b).hexdigest())\n")
    result = mine("python3 -", stdin=script, timeoutSec=300)
    assert result["exitCode"] == 0
    assert result["truncated"] is True
    assert len(result.content[0]["text"].encode()) <= TEXT_MAX
    data = whole(mine, result)
    assert len(data) == 64 << 20
    assert hashlib.sha256(data).hexdigest() == result["stderr"]
    status, headers, part = mine.client.fetch(result["outputUrl"], {"Range": "bytes=33554432-33554687"})
    assert status == 206
    assert headers["content-range"] == "bytes 33554432-33554687/67108864"
    assert part == bytes(range(256))


def test_left_out_bytes_are_counted_right(mine):
    result = mine("seq 1 100000")
    text = result["stdout"]
    found = re.search(r"\n\[… (\d+) bytes left out here, from byte (\d+) on …\]\n", text)
    assert found, text[:200]
    data = whole(mine, result).decode()
    assert data == "".join(f"{n}\n" for n in range(1, 100001))
    left_out, start = int(found[1]), int(found[2])
    head, tail = text[:found.start()], text[found.end():]
    assert head == data[:start]
    assert tail == data[start + left_out:]
    assert len(head) > 2000 and len(tail) > 2000


@pytest.mark.parametrize("cmd, code, signal", [
    ("true", 0, None),
    ("exit 7", 7, None),
    ("exit 255", 255, None),
    ("no-such-command-anywhere", 127, None),
    ("/etc/passwd", 126, None),
    ("/work", 126, None),
    ("kill -TERM $$", 143, "SIGTERM"),
    ("kill -KILL $$", 137, "SIGKILL"),
    ("kill -SEGV $$", 139, "SIGSEGV"),
    ("sh -c 'kill -INT $$'", 130, None),
    ("if then fi", 2, None),
    ("exec true", 0, None),
    ("echo no newline at the end # and a comment", 0, None),
    ("cat <<END\nhere\nEND", 0, None),
])
def test_shell_truth(mine, cmd, code, signal):
    result = mine(cmd)
    assert result["exitCode"] == code, result
    if signal:
        assert result["signal"] == signal
    assert result["timedOut"] is False
    assert result["oomKilled"] is False


def test_a_command_that_ends_its_own_shell(mine):
    assert mine("echo before; kill -9 $$; echo after")["stdout"] == "before\n"
    assert mine("echo gone; exec kill -9 0")["exitCode"] == 137
    assert mine("kill -9 -1; echo not reached")["exitCode"] == 137
    assert mine("echo alive")["stdout"] == "alive\n"


def test_pid_one_cannot_be_killed_from_inside(mine):
    mine("kill -9 1; kill -TERM 1; kill -INT 1; kill -STOP 1")
    assert mine("echo alive; ps -p 1 -o comm= 2>/dev/null || cat /proc/1/comm")["stdout"].startswith("alive\n")


def test_where_it_runs(mine):
    mine("mkdir -p 'a b/c'; ln -sfn /etc out; ln -sfn 'a b' in")
    assert mine("pwd")["stdout"] == "/work\n"
    for cwd in (".", "/work", "/work/", "./"):
        assert mine("pwd", cwd=cwd)["stdout"] == "/work\n"
    for cwd in ("a b/c", "/work/a b/c", "./a b/c", "a b/c/"):
        assert mine("pwd -P", cwd=cwd)["stdout"] == "/work/a b/c\n"
    assert mine("pwd -P", cwd="in")["stdout"] == "/work/a b\n"


@pytest.mark.parametrize("cwd, words", [
    ("/etc", ["/etc", "below /work"]), ("../etc", ["../etc"]), ("a/../..", [".."]), ("~", ["~"]), ("~/x", ["~/x"]),
    ("/worker", ["/worker"]), ("missing", ["missing"]), ("a//b", ["a//b"]), ("out", ["out"]), ("a\0b", ["NUL"]),
])
def test_where_it_must_not_run(mine, cwd, words):
    mine("mkdir -p a; ln -sfn /etc out")
    result = mine("touch /tmp/it-ran", cwd=cwd)
    assert result.is_error, result
    assert "cwd" in result.text
    for word in words:
        assert word in result.text, result.text
    assert mine("ls /tmp/it-ran")["exitCode"] == 2


def test_environment(mine):
    result = mine("printf '%s|%s|%s' \"$A\" \"$B\" \"$HOME\"", env={"A": "1 2\n\"'$x", "B": "é"})
    assert result["stdout"].startswith("1 2\n\"'$x|é|/")
    assert mine("echo \"[$A]\"")["stdout"] == "[]\n", "one command's variables must not reach the next"
    assert "/usr/bin" in mine("echo $PATH")["stdout"]
    assert not re.search(r"psbx_|PSBX|NOTIFY|LISTEN_FDS", mine("env")["stdout"])
    for env, word in (({"A=B": "x"}, "A=B"), ({"": "x"}, "env"), ({"A": 7}, "7"), ({"A": "x\0y"}, "NUL")):
        result = mine("true", env=env)
        assert result.is_error, (env, result)
        assert "env" in result.text and word in result.text, result.text


def test_stdin(mine):
    assert mine("cat; echo end")["stdout"] == "end\n", "without stdin a reader meets the end at once"
    assert mine("cat", stdin="é\n\x01x")["stdout"] == "é\n\x01x"
    result = mine("cat > /tmp/it-ran", stdin="a\0b")
    assert result.is_error and "stdin" in result.text and "NUL" in result.text, "never cut silently"
    big = "0123456789abcdef" * 62500
    result = mine("sha256sum; wc -c", stdin=big)
    assert result["stdout"].split()[0] == hashlib.sha256(big.encode()).hexdigest()
    # a command that writes before it reads, and one that never reads
    assert mine("head -c 4000000 /dev/zero; wc -c >&2", stdin=big)["stderr"] == "1000000\n"
    assert mine("echo done", stdin=big)["stdout"] == "done\n"


@pytest.mark.parametrize("arguments, words", [
    ({"cmd": "touch /tmp/it-ran\0x"}, ["cmd", "NUL"]),
    ({"note": "n" * 201}, ["note", "200"]),
    ({"note": ""}, ["note"]),
    ({"note": None}, ["note"]),
    ({"cmd": ""}, ["cmd"]),
    ({"timeoutSec": 0}, ["timeoutSec", "0"]),
    ({"timeoutSec": 3601}, ["timeoutSec", "3601", "3600"]),
    ({"execId": "a b"}, ["execId", "a b"]),
    ({"execId": "x" * 65}, ["execId"]),
    ({"background": "yes"}, ["background", "yes"]),
    ({"shell": "zsh"}, ["shell"]),
])
def test_refusals(mine, arguments, words):
    result = mine.client.tool("sandbox_exec", {"id": mine.box, "cmd": "touch /tmp/it-ran", "note": "a test", **arguments})
    assert result.is_error
    for word in words:
        assert word in result.text, result.text
    assert mine("ls /tmp/it-ran")["exitCode"] == 2


def test_missing_arguments_are_named(mine):
    for missing in ("id", "cmd", "note"):
        arguments = {"id": mine.box, "cmd": "true", "note": "a test"}
        del arguments[missing]
        result = mine.client.tool("sandbox_exec", arguments)
        assert result.is_error
        assert f"`{missing}` is required: " in result.text


@pytest.mark.parametrize("cmd", [
    "head -c 100000 /dev/zero | tr '\\0' '\\001'",
    "head -c 24000 /dev/zero | tr '\\0' '\\001'; head -c 24000 /dev/zero | tr '\\0' '\\002' >&2",
    "head -c 20000 /dev/zero | tr '\\0' '\"'; head -c 20000 /dev/zero | tr '\\0' '\\\\' >&2",
    "head -c 5000000 /dev/urandom; head -c 5000000 /dev/urandom >&2",
    "for i in $(seq 3000); do printf '\\303'; done; seq 1 5000 >&2",
])
def test_a_result_stays_small(mine, cmd):
    result = mine(cmd)
    text = result.content[0]["text"].encode()
    assert len(text) <= TEXT_MAX, len(text)
    assert result["exitCode"] == 0
    assert result["truncated"] or "outputUrl" in result.data
    assert len(whole(mine, result)) > 0


def test_both_streams_cut_have_a_link_each(mine):
    result = mine("seq 1 20000; seq 20001 40000 >&2")
    assert result["truncated"] is True
    assert whole(mine, result).endswith(b"\n20000\n")
    status, _, data = mine.client.fetch(result["stderrUrl"])
    assert status == 200 and data.startswith(b"20001\n") and data.endswith(b"\n40000\n")


def test_exec_id_is_unique_in_a_box(mine):
    assert mine("echo first", execId="my-id_1")["execId"] == "my-id_1"
    result = mine("touch /tmp/it-ran", execId="my-id_1")
    assert result.is_error
    assert "my-id_1" in result.text and "nothing was run" in result.text
    assert mine("ls /tmp/it-ran")["exitCode"] == 2
    assert mine("echo", execId="my-id_2")["exitCode"] == 0


def test_many_commands_at_once(mine):
    said = gather([lambda n=n: mine(f"cat; echo {n}", stdin=f"{n} " * 2000) for n in range(24)])
    for n, result in enumerate(said):
        assert result["stdout"] == f"{n} " * 2000 + f"{n}\n"


def test_unknown_box(mine):
    result = mine.client.exec("nosuchbox1", "true")
    assert result.is_error
    assert "nosuchbox1" in result.text and "sandbox_list" in result.text
