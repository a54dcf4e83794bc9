"""running → frozen → archived → deleted, and back: what counts as use, what wakes, and what refusals say."""

import hashlib
import json
import os
import re
import secrets
import signal
import sqlite3
import threading
import time

import pytest
from instance import until
from mcpclient import gather

NEVER = ("--freeze-after", "never", "--archive-after", "never")
SOON = ("--freeze-after", "1s", "--archive-after", "never")


def rows(client):
    return {row["id"]: row for row in client.tool("sandbox_list", {"all": True})["boxes"]}


def state(client, box):
    return rows(client).get(box, {}).get("status", "gone")


def frozen(client, *boxes):
    until(lambda: all(state(client, box) == "frozen" for box in boxes))


def restore(client, box, goal="again", **arguments):
    return client.tool("sandbox_start", {"goal": goal, "restore": box, **arguments})


class held:
    """A boxhost that is stopped in the middle of whatever it is asked."""

    def __init__(self, server):
        self.pid = until(server.boxhost_pid)

    def __enter__(self):
        os.kill(self.pid, signal.SIGSTOP)

    def __exit__(self, *_):
        os.kill(self.pid, signal.SIGCONT)


def in_background(function):
    said = []
    thread = threading.Thread(target=lambda: said.append(function()), daemon=True)
    thread.start()

    def result():
        thread.join(60)
        return said[0]

    return result


# --- freezing -------------------------------------------------------------------------------------------------


def test_an_unused_box_is_frozen_and_any_use_thaws_it(new_server):
    server = new_server(arguments=SOON)
    client = server.client()
    box = client.start(size="small")
    client.exec(box, "i=0; while :; do i=$((i+1)); echo $i > count.new; mv count.new count; sleep 1; done", background=True)
    frozen(client, box)
    row = rows(client)[box]
    assert "any use wakes it" in row["statusReason"]
    before = client.tool("sandbox_status", {"id": box})["resources"]["cpu"]["usedMs"]
    time.sleep(1)
    status = client.tool("sandbox_status", {"id": box})
    assert (status["status"], status["resources"]["cpu"]["usedMs"]) == ("frozen", before), "nothing moves in it"
    assert "health" not in status.data, "a frozen box is not asked"
    assert json.loads(client.rest("GET", f"/v1/boxes/{box}")[2])["status"] == "frozen", "looking wakes nothing"
    result = client.exec(box, "date +%s.%N; cat count")
    stamp, number = result["stdout"].split()
    assert abs(float(stamp) - time.time()) < 5, "the clock is right at once"
    assert state(client, box) == "running"
    assert client.exec(box, f"sleep 2.5; [ $(cat count) -gt {number} ] && echo goes on")["stdout"] == "goes on\n"


def test_the_clocks_are_right_after_a_long_sleep(new_server):
    server = new_server(arguments=SOON)
    client = server.client()
    box = client.start(size="small")
    client.exec(box, "python3 -c 'import time; print(time.time() - time.monotonic())' > before 2>/dev/null || echo none > before")
    frozen(client, box)
    time.sleep(4)
    lines = client.exec(box, "date +%s.%N; cat before; python3 -c 'import time; print(time.time() - time.monotonic())' || echo none")["stdout"].split()
    assert abs(float(lines[0]) - time.time()) < 2
    if "none" not in lines:
        assert abs(float(lines[1]) - float(lines[2])) < 0.5, "both clocks went on alike"


@pytest.mark.parametrize("use", ["exec", "sync", "get", "procs"])
def test_each_kind_of_use_thaws(new_server, use):
    server = new_server(arguments=SOON)
    client = server.client()
    box = client.start(size="small")
    client.exec(box, "echo x > file")
    frozen(client, box)
    if use == "sync":
        assert client.rest("POST", f"/v1/boxes/{box}/sync?dest=d", b"\0" * 1024)[0] == 200
    else:
        tool, arguments = {"exec": ("sandbox_exec", {"cmd": "true", "note": "n"}), "get": ("sandbox_get", {"path": "file"}),
                           "procs": ("sandbox_procs", {"action": "list"})}[use]
        assert not client.tool(tool, {"id": box, **arguments}).is_error
    assert state(client, box) == "running"


def test_many_callers_share_one_thaw(new_server):
    server = new_server(arguments=SOON)
    client = server.client()
    box = client.start(size="small")
    for _ in range(3):
        frozen(client, box)
        said = gather([lambda n=n: client.exec(box, f"echo {n}")["stdout"] for n in range(20)])
        assert said == [f"{n}\n" for n in range(20)]


def test_what_is_in_use_is_not_frozen(new_server):
    server = new_server(arguments=SOON)
    client = server.client()
    waits, works, sleeps = (client.start(size="small") for _ in range(3))
    client.exec(works, "while :; do :; done", background=True)
    client.exec(sleeps, "sleep 800", background=True)
    answer = in_background(lambda: client.exec(waits, "sleep 6; echo done"))
    frozen(client, sleeps)  # a job that nobody waits for and that does nothing keeps no box awake
    for _ in range(20):
        assert state(client, waits) == "running", "a command that is waited for"
        assert state(client, works) == "running", "a job that computes"
        time.sleep(0.2)
    assert answer()["stdout"] == "done\n"
    frozen(client, waits)
    assert client.exec(sleeps, "pgrep -fxc 'sleep 800'")["stdout"] == "1\n"


def test_frozen_boxes_outlive_every_restart(new_server):
    server = new_server(arguments=SOON)
    client = server.client()
    box = client.start(size="small")
    client.exec(box, "sleep 801", background=True)
    frozen(client, box)
    server.kill()
    server.start()
    assert state(client, box) == "frozen"
    os.kill(until(server.boxhost_pid), signal.SIGKILL)
    until(lambda: server.get("/readyz")[0] == 200)
    assert state(client, box) == "frozen"
    assert client.exec(box, "pgrep -fxc 'sleep 801'")["stdout"] == "1\n"
    frozen(client, box)
    data = client.stop(box)
    assert data["status"] == "archived", data


def test_a_box_that_cannot_be_thawed(new_server):
    server = new_server(arguments=SOON)
    client = server.client()
    box = client.start(size="small")
    frozen(client, box)
    boxhost = server.boxhost_pid()
    os.kill(server.supervisor_pid(), signal.SIGKILL)
    os.kill(boxhost, signal.SIGKILL)
    status, _, body = client.rest("POST", f"/v1/boxes/{box}/sync?dest=d", b"")
    assert status == 409 and b"cannot be thawed" in body, body
    result = client.exec(box, "true")
    assert result.is_error and "cannot be thawed" in result.text
    assert state(client, box) == "frozen"
    server.stop()
    server.start()
    assert client.exec(box, "echo well")["stdout"] == "well\n"


# --- archiving and restoring ------------------------------------------------------------------------------------


def test_an_unused_box_is_archived_and_comes_back(new_server):
    server = new_server(arguments=("--freeze-after", "1s", "--archive-after", "4s", "--keep-archives", "2d"))
    client = server.client(agent="one", client="one/1")
    box = client.start(size="small", name="the name", goal="first goal", services=[{"name": "web", "port": 80, "targetPort": 8080}])
    client.exec(box, "mkdir -p d; echo kept > d/file; ln -s d/file link; sleep 802 & echo also > /var/also")
    assert "stopsAt" in rows(client)[box]
    until(lambda: state(client, box) == "archived")
    row = rows(client)[box]
    assert row["restorableUntil"] > row["endedAt"] and "stopsAt" not in row and "not used" in row["statusReason"]
    assert box not in {row["id"] for row in client.tool("sandbox_list", {})["boxes"]}
    assert server.boxes_on_disk() == set() and server.archives_on_disk() == {box}
    assert not (server.state / "run" / f"{box}.sock").exists()
    for tool, arguments in (("sandbox_exec", {"cmd": "true", "note": "x"}), ("sandbox_get", {"path": "x"}), ("sandbox_procs", {"action": "list"})):
        result = client.tool(tool, {"id": box, **arguments})
        assert result.is_error and "archived" in result.text and f'restore: "{box}"' in result.text, result.text
    assert client.rest("POST", f"/v1/boxes/{box}/sync?dest=d", b"")[0] == 409
    assert client.tool("sandbox_status", {"id": box})["restorableUntil"] == row["restorableUntil"]
    again = restore(server.client(agent="two", client="two/1"), box, goal="second goal")
    assert not again.is_error, again.text
    assert (again["id"], again["name"], again["goal"], again["status"], again["size"]) == (box, "the name", "second goal", "running", "small")
    assert again["services"][0]["name"] == "web" and "restorableUntil" not in again.data and "note" not in again.data
    assert again["agent"]["thisConversation"] is True and again["agent"]["client"] == "two/1"
    said = client.exec(box, "cat link /var/also; getent hosts web; pgrep -fxc 'sleep 802'; hostname")["stdout"].split()
    assert said == ["kept", "also", "198.18.0.2", "web", "0", box]
    assert [step["note"] for step in client.tool("sandbox_status", {"id": box})["steps"]], "its history goes on"


def test_stop_archives_and_a_second_stop_deletes(new_server):
    server = new_server(arguments=NEVER)
    client = server.client()
    box = client.start(size="small")
    assert "stopsAt" not in rows(client)[box], "never means never"
    client.exec(box, "echo x > precious")
    data = client.stop(box)
    assert (data["ok"], data["status"]) == (True, "archived") and data["restorableUntil"]
    assert [entry["path"] for entry in data["unsavedWork"]] == ["precious"]
    assert restore(client, box)["status"] == "running"
    assert client.exec(box, "cat precious")["stdout"] == "x\n"
    client.stop(box)
    data = client.stop(box)
    assert (data["status"], data["unsavedWork"]) == ("deleted", []) and "restorableUntil" not in data.data
    assert server.archives_on_disk() == set() and rows(client) == {}
    result = restore(client, box)
    assert result.is_error and "restore" in result.text and "no box" in result.text


def test_restored_again_and_again(new_server):
    server = new_server(arguments=NEVER)
    client = server.client()
    box = client.start(size="small")
    for number in range(5):
        assert client.exec(box, f"cat n 2>/dev/null; echo {number} >> n; useradd -m u{number}; chown u{number} n")["stdout"].split() == \
            [str(n) for n in range(number)]
        client.stop(box)
        assert not restore(client, box, name=f"name {number}", services=[{"name": f"s{number}", "port": 1}]).is_error
    assert client.exec(box, "stat -c %U n; getent hosts s4 s0")["stdout"].split() == ["u4", "127.0.0.1", "s4"]
    row = rows(client)[box]
    assert (row["name"], [s["name"] for s in row["services"]]) == ("name 4", ["s4"])


def test_over_a_changed_image_work_comes_back_and_a_note_says_so(new_server):
    server = new_server(arguments=NEVER)
    client = server.client()
    box = client.start(size="small")
    client.exec(box, "echo kept > file; echo gone > /var/gone; echo broken > /etc/passwd")
    client.stop(box)
    spec = server.state / "boxhost" / "archive" / box / "spec.json"
    record = json.loads(spec.read_text())
    record["lower"] = "another"
    spec.write_text(json.dumps(record))
    again = restore(client, box)
    assert "/work" in again["note"] and "image" in again["note"]
    assert client.exec(box, "cat file; ls /var/gone; grep -c ^root: /etc/passwd")["stdout"].split() == ["kept", "1"]


def test_secrets_are_gone_at_stop_and_given_again_only_when_asked(new_server):
    server = new_server(arguments=NEVER)
    client = server.client()
    value = "s3cr3t-" + secrets.token_hex(12)
    assert client.rest("PUT", "/v1/secrets/TOKEN", {"value": value})[0] in (200, 201, 204)
    box = client.start(size="small", secrets=["TOKEN"])
    assert client.exec(box, "echo ${#TOKEN}")["stdout"] == f"{len(value)}\n"
    client.stop(box)
    for path in (server.state / "boxhost" / "archive" / box).rglob("*"):
        assert not path.is_file() or value.encode() not in path.read_bytes(), path
    assert not restore(client, box).is_error
    assert client.exec(box, "echo ${TOKEN-none}")["stdout"] == "none\n"
    client.stop(box)
    again = restore(client, box, goal=f"with {value} in it", secrets=["TOKEN"])
    assert not again.is_error and value not in json.dumps(again.data), again.text
    assert client.exec(box, "echo ${#TOKEN}; echo $TOKEN")["stdout"].split()[0] == str(len(value))
    assert value not in client.exec(box, "echo $TOKEN")["stdout"]
    client.stop(box)
    refused = restore(client, box, secrets=["NO_SUCH"])
    assert refused.is_error and "NO_SUCH" in refused.text and state(client, box) == "archived"


def test_a_lost_box_can_be_restored(new_server):
    server = new_server(arguments=NEVER)
    client = server.client()
    box, other = client.start(size="small"), client.start(size="small")
    for one in (box, other):
        client.exec(one, "echo kept > file")
    os.kill(server.box_pid(box), signal.SIGKILL)
    until(lambda: state(client, box) == "lost")
    assert rows(client)[box]["restorableUntil"]
    assert "restore" in client.exec(box, "true").text
    pid = server.box_pid(other)
    server.kill()
    os.kill(pid, signal.SIGKILL)
    server.start()
    for one in (box, other):
        assert not restore(client, one).is_error
        assert client.exec(one, "cat file")["stdout"] == "kept\n"


def test_what_was_kept_long_enough_is_deleted(new_server):
    server = new_server(arguments=(*NEVER, "--keep-archives", "1s"))
    client = server.client()
    box = client.start(size="small")
    client.stop(box)
    until(lambda: rows(client) == {}, 60)
    until(lambda: server.archives_on_disk() == set())


# --- refusals ---------------------------------------------------------------------------------------------------


def stranger_of(server):
    key = "psbx_" + secrets.token_urlsafe(32)
    database = sqlite3.connect(server.state / "state.db", timeout=30)
    with database:
        database.execute("INSERT INTO accounts (id, name, created_at) VALUES ('strangers', 'strangers', 1)")
        database.execute("INSERT INTO keys (id, account_id, name, hash, hint, created_at) VALUES ('strangerskey', 'strangers', 'k', ?, 'psbx_…', 1)",
                         (hashlib.sha256(key.encode()).digest(),))
    database.close()
    return server.client(key=key)


def test_a_foreign_archive_is_an_unknown_box(new_server):
    server = new_server(arguments=NEVER)
    client = server.client()
    stranger = stranger_of(server)
    box = client.start(size="small", goal="a secret goal")
    unknown = "u" * len(box)
    for _ in range(2):  # running, then archived
        foreign, nobody = restore(stranger, box), restore(stranger, unknown)
        assert foreign.is_error and foreign.text.replace(box, unknown) == nobody.text
        client.stop(box) if state(client, box) == "running" else None
    foreign, nobody = stranger.stop(box), stranger.stop(unknown)
    assert foreign.is_error and foreign.text.replace(box, unknown) == nobody.text
    assert server.archives_on_disk() == {box}
    assert not restore(client, box).is_error


def test_what_cannot_be_restored(new_server):
    server = new_server(arguments=(*NEVER, "--max-boxes", "1"))
    client = server.client()
    box = client.start(size="small")
    result = restore(client, box)
    assert result.is_error and "not archived" in result.text and "use it as it is" in result.text
    client.stop(box)
    for arguments, words in (({"size": "large"}, "size"), ({"services": [{"name": "a", "port": 1}, {"name": "a", "port": 2}]}, "twice"),
                             ({"image": "no-such-image"}, "no-such-image")):
        result = restore(client, box, **arguments)
        assert result.is_error and words in result.text, result.text
        assert state(client, box) == "archived" and server.archives_on_disk() == {box}
    other = client.start(size="small")
    result = restore(client, box)
    assert result.is_error and "1 fit" in result.text
    waiting = in_background(lambda: restore(client, box, waitForCapacitySec=60))
    until(lambda: "being brought back" in client.exec(box, "true").text)
    assert "being brought back" in client.stop(box).text
    assert "being brought back" in restore(client, box).text
    client.stop(other)
    assert waiting()["id"] == box, "restores queue like starts"
    client.stop(box)
    for name in ("disk.img", "root"):
        path = server.state / "boxhost" / "archive" / box / name
        if path.exists():
            path.rename(path.with_name("away"))
            result = restore(client, box)
            assert result.is_error and "kept as it was" in result.text
            path.with_name("away").rename(path)
    assert not restore(client, box).is_error


def test_calls_that_come_in_the_middle(new_server):
    server = new_server(arguments=NEVER)
    client = server.client()
    box = client.start(size="small")
    client.exec(box, "echo kept > file")
    with held(server):
        stopping = in_background(lambda: client.stop(box))
        until(lambda: "being" in client.exec(box, "true", timeoutSec=5).text)
        for call in (lambda: restore(client, box), lambda: client.stop(box), lambda: client.exec(box, "true")):
            result = call()
            assert result.is_error and re.search(r"being (archived|stopped)", result.text), result.text
    assert stopping()["status"] == "archived"
    with held(server):
        restoring = in_background(lambda: restore(client, box))
        until(lambda: "being brought back" in client.exec(box, "true").text)
        for call in (lambda: restore(client, box), lambda: client.stop(box), lambda: client.exec(box, "true")):
            result = call()
            assert result.is_error and "being brought back" in result.text, result.text
    assert restoring()["id"] == box
    assert client.exec(box, "cat file")["stdout"] == "kept\n"


def test_two_restores_at_once(new_server):
    server = new_server(arguments=NEVER)
    client = server.client()
    box = client.start(size="small")
    for _ in range(3):
        client.stop(box)
        results = gather([lambda: restore(client, box)] * 6)
        assert sum(not result.is_error for result in results) == 1
        assert all(not result.is_error or "being brought back" in result.text or "not archived" in result.text for result in results)
        assert len(rows(client)) == 1 and server.boxes_on_disk() == {box} and server.archives_on_disk() == set()


def test_a_cancelled_restore(new_server):
    server = new_server(arguments=NEVER)
    client = server.client()
    box = client.start(size="small")
    client.exec(box, "echo kept > file")
    client.stop(box)
    with held(server):
        exchange = client.open("tools/call", {"name": "sandbox_start", "arguments": {"goal": "g", "restore": box}})
        until(lambda: "being brought back" in client.exec(box, "true").text)
        client.cancel(exchange.request_id)
        exchange.close()
    until(lambda: "being" not in client.exec(box, "true").text)
    until(lambda: state(client, box) == ("archived" if server.archives_on_disk() else "running"))
    if state(client, box) == "archived":
        until(lambda: not restore(client, box).is_error)
    assert client.exec(box, "cat file")["stdout"] == "kept\n"


# --- room -------------------------------------------------------------------------------------------------------


def test_the_longest_idle_frozen_box_makes_room(new_server):
    server = new_server(arguments=("--freeze-after", "1s", "--archive-after", "never", "--max-boxes", "3"))
    client = server.client()
    busy, old, young = (client.start(size="small") for _ in range(3))
    client.exec(busy, "while :; do :; done", background=True)
    client.exec(old, "echo kept > file")
    client.exec(young, "true")
    frozen(client, old, young)
    client.exec(young, "true")
    frozen(client, old, young)
    new = client.start(size="small")
    assert {box: row["status"] for box, row in rows(client).items() if box != new} == {busy: "running", old: "archived", young: "frozen"}
    assert "make room" in rows(client)[old]["statusReason"]
    # one that waits gets its place as soon as a box is frozen; those in use are never touched
    gather([lambda: client.exec(new, "true"), lambda: client.exec(young, "true")])
    waited = client.tool("sandbox_start", {"goal": "patient", "size": "small", "waitForCapacitySec": 60}, headers={"X-Psbx-Tool-Wait-Sec": "60"})
    assert not waited.is_error
    assert state(client, busy) == "running"
    again = restore(client, old, waitForCapacitySec=60)
    assert again.is_error or client.exec(old, "cat file")["stdout"] == "kept\n"


def test_options_are_checked(server):
    for option, value in (("--freeze-after", "soon"), ("--freeze-after", "10"), ("--freeze-after", "0s"), ("--archive-after", "-1h"),
                          ("--keep-archives", "never"), ("--keep-archives", "4000d"), ("--disk-reserve", "1K"), ("--disk-reserve", "much")):
        with pytest.raises(AssertionError) as error:
            server.command("serve", option, value)
        assert option in str(error.value) and "ended with 2" in str(error.value)
