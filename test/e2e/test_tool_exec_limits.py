"""Commands that hit a limit of their box: time, memory, processes, disk. Only that box suffers, and it is told in words."""

import io
import tarfile

import pytest


@pytest.fixture(scope="module")
def boxes(server):
    """Two boxes: one to maltreat, one that must not notice."""
    client = server.client()
    one, two = client.start(size="small"), client.start(size="small")
    yield client, one, two
    for box in (one, two):
        client.stop(box)


def unharmed(client, box):
    result = client.exec(box, "echo works && head -c 1000000 /dev/zero > /work/x && sync /work/x && rm /work/x && (true & wait)")
    assert result["stdout"] == "works\n", result
    assert result["exitCode"] == 0, result


def test_a_timeout_ends_the_whole_tree(boxes):
    client, box, _ = boxes
    result = client.exec(box, "echo started; sleep 987 & setsid sleep 987 & (setsid sh -c 'sleep 987 & exit' &) ; "
                              "python3 -c 'import os,time\nif os.fork(): os._exit(0)\nos.setsid()\nif os.fork(): os._exit(0)\n"
                              "os.execvp(\"sleep\", [\"sleep\", \"987\"])'; nohup sleep 987 >/dev/null 2>&1 & sleep 987",
                         timeoutSec=2)
    assert result["timedOut"] is True
    assert result["stdout"] == "started\n"
    assert result["exitCode"] == 137
    assert result["oomKilled"] is False
    assert client.exec(box, "pgrep -x sleep")["stdout"] == ""


def test_a_timeout_wins_over_a_trap(boxes):
    client, box, _ = boxes
    result = client.exec(box, "trap '' TERM INT HUP; while :; do sleep 1; done", timeoutSec=1)
    assert result["timedOut"] is True


def test_memory(boxes):
    client, box, other = boxes
    result = client.exec(box, "python3 -c \"x = bytearray(1 << 20)\nkeep = []\nwhile True: keep.append(b'x' * (64 << 20))\"")
    assert result["exitCode"] == 137
    assert result["signal"] == "SIGKILL" or result["oomKilled"]
    assert result["oomKilled"] is True
    # the next command is not blamed for it
    result = client.exec(box, "kill -9 $$")
    assert (result["exitCode"], result["oomKilled"]) == (137, False)
    result = client.exec(box, "echo survived")
    assert (result["stdout"], result["oomKilled"]) == ("survived\n", False)
    unharmed(client, other)


def test_memory_in_a_child(boxes):
    client, box, other = boxes
    result = client.exec(box, "python3 -c \"keep = []\nwhile True: keep.append(b'x' * (64 << 20))\"; echo \"child said $?\"; exit 3")
    assert result["exitCode"] == 3
    assert "child said 137" in result["stdout"]
    assert result["oomKilled"] is True
    unharmed(client, other)


def test_shared_memory_counts(boxes):
    client, box, other = boxes
    result = client.exec(box, "head -c 3000000000 /dev/zero > /dev/shm/fill; echo $?; rm -f /dev/shm/fill")
    assert result["stdout"] != "0\n"
    unharmed(client, box)
    unharmed(client, other)


def test_too_many_processes(boxes):
    client, box, other = boxes
    result = client.exec(box, "for i in $(seq 2000); do sleep 60 & done; wait", timeoutSec=100)
    assert result["exitCode"] != 0
    denied = [line for line in result["denied"] if "processes" in line]
    assert denied and "512" in denied[0], result
    unharmed(client, other)

    # Its sleepers live on and fill the box: a further command is told why it cannot start, and ending the job helps.
    result = client.exec(box, "echo again")
    if result.is_error:
        assert "process limit" in result.text
    jobs = client.tool("sandbox_procs", {"id": box, "action": "list"})["procs"]
    assert [job["processes"] for job in jobs] and max(job["processes"] for job in jobs) > 400
    for job in jobs:
        assert not client.tool("sandbox_procs", {"id": box, "action": "stop", "bgId": job["bgId"]}).is_error
    assert client.exec(box, "echo again; pgrep -c sleep")["stdout"] == "again\n0\n"


def test_a_fork_bomb(boxes):
    client, box, other = boxes
    result = client.exec(box, "b() { b | b & }; b; sleep 2; true", timeoutSec=10)
    unharmed(client, other)
    assert not result.is_error or "limit" in result.text
    # What is left of it can be ended, and the box works again.
    for job in client.tool("sandbox_procs", {"id": box, "action": "list"})["procs"]:
        client.tool("sandbox_procs", {"id": box, "action": "stop", "bgId": job["bgId"]})
    unharmed(client, box)


def test_ten_thousand_orphans(boxes):
    client, box, other = boxes
    result = client.exec(box, "python3 - <<'END'\n"
                              "import os\n"
                              "for i in range(10000):\n"
                              "    if os.fork() == 0:\n"
                              "        if os.fork() == 0:\n"
                              "            os._exit(0)\n"
                              "        os._exit(0)\n"
                              "    os.wait()\n"
                              "END", timeoutSec=120)
    assert result["exitCode"] == 0, result
    left = client.exec(box, "ls -d /proc/[0-9]* | wc -l; ps -eo stat= | grep -c ^Z")
    processes, zombies = map(int, left["stdout"].split())
    assert processes < 20
    assert zombies == 0
    unharmed(client, other)


def test_a_full_disk(boxes):
    client, box, other = boxes
    result = client.exec(box, "head -c 8G /dev/zero > /work/fill", timeoutSec=300)
    assert result["exitCode"] != 0
    denied = [line for line in result["denied"] if "disk" in line]
    assert denied and "full" in denied[0], result
    unharmed(client, other)
    # with a full disk the box still answers, and says so over REST as well
    assert client.exec(box, "echo answers")["stdout"] == "answers\n"
    data = b"\0" * (1 << 20)
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        info = tarfile.TarInfo("big")
        info.size = len(data)
        tar.addfile(info, io.BytesIO(data))
    status, _, body = client.rest("POST", f"/v1/boxes/{box}/sync?dest=d", archive.getvalue())
    assert status == 507, body
    assert client.exec(box, "rm /work/fill; ls /work/d 2>/dev/null")["stdout"] == ""
    unharmed(client, box)
