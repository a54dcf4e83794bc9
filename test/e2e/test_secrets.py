"""Secrets: over REST, on the page, given to boxes, sealed at rest, and what becomes of them without their key."""

import hashlib
import json
import os
import signal
import sqlite3
import stat
import threading
import urllib.request

import pytest
from browser import Browser
from instance import until
from oauthclient import PASSWORD, people
from secretlib import put, rest

MASKED = "[secret TOKEN]"


def printed(client, box, cmd='printf "%s" "$TOKEN"'):
    result = client.exec(box, cmd)
    assert not result.is_error, result.text
    return result.data["stdout"]


def length(client, box, name="TOKEN"):
    """What the box has, without printing it."""
    return int(client.exec(box, f'echo "${{#{name}}}"').data["stdout"])


@pytest.fixture(autouse=True)
def clean(request):
    yield
    if "server" in request.fixturenames:
        server = request.getfixturevalue("server")
        for row in rest(server, "GET", "/v1/secrets")[1]["secrets"]:
            rest(server, "DELETE", f"/v1/secrets/{row['name']}")


# --- REST ------------------------------------------------------------------------------------------------------------
def test_names_only_come_back(server):
    first = put(server, "TOKEN", "a value to keep")
    assert first == {"name": "TOKEN", "createdAt": first["createdAt"], "changedAt": first["createdAt"], "lastUsedAt": None}
    second = until(lambda: (again := put(server, "TOKEN", "another value"))["changedAt"] > first["changedAt"] and again)
    assert second["createdAt"] == first["createdAt"]
    put(server, "_a1", "x" * 16384)
    status, answer = rest(server, "GET", "/v1/secrets")
    assert status == 200 and [row["name"] for row in answer["secrets"]] == ["TOKEN", "_a1"] and "value" not in json.dumps(answer)
    assert rest(server, "GET", "/v1/secrets/TOKEN")[0] == 405
    assert rest(server, "DELETE", "/v1/secrets/TOKEN") == (204, "")
    status, answer = rest(server, "DELETE", "/v1/secrets/TOKEN")
    assert status == 404 and "TOKEN" in answer["error"]


@pytest.mark.parametrize("name", ["1A", "A-B", "A.B", "A%20B", "%00", "A%00", "A" * 65, "A" * 5000, "%C3%A9", "..", "PATH", "HOME", "LD_PRELOAD", "BASH_ENV", "A=B"])
def test_names_that_cannot_be(server, name):
    for method, body in (("PUT", {"value": "a fine value"}), ("DELETE", None)):
        status, answer = rest(server, method, f"/v1/secrets/{name}", body)
        assert status in (400, 404) and answer["error"], (method, answer)
    assert rest(server, "GET", "/v1/secrets")[1] == {"secrets": []}


@pytest.mark.parametrize("raw, words", [
    (b"", "JSON"), (b"{", "JSON"), (b"[]", "array"), (b'"abcdefgh"', "string"), (b"{}", "`value` is required"), (b'{"value":null}', "`value` is required"),
    (b'{"value":12345678}', "must be a string"), (b'{"value":["abcdefgh"]}', "must be a string"), (b'{"value":"abcdefgh","x":1}', '"x"'),
    (b'{"value":""}', "at least 6"), (b'{"value":"12345"}', "at least 6"), (b'{"value":"abc\\u0000defg"}', "NUL"), (b'{"value":"abc\xff\xfedefg"}', "JSON"),
    (json.dumps({"value": "x" * 16385}).encode(), "at most 16384"), (json.dumps({"value": "\x01" * 16384 + "x" * 99999}).encode(), "at most 16384"),
])
def test_bodies_that_cannot_be(server, raw, words):
    status, answer = rest(server, "PUT", "/v1/secrets/TOKEN", raw=raw)
    assert status in (400, 413) and words in answer["error"], answer
    assert "abcdefgh" not in answer["error"] and "12345" not in answer["error"].replace("at least 6", ""), "no value is repeated"
    assert rest(server, "GET", "/v1/secrets")[1] == {"secrets": []}


def test_every_value_that_can_be(server, client):
    values = ["123456", "\x01\x7f\x1b[31m\t\n", "日本語の秘密", "a\\\"'`$(reboot)", "x" * 16384, "=a=b=c=", "line\n" * 2000, "\n\n\n\n\n\n\n"]
    for number, value in enumerate(values):
        put(server, f"V{number}", value)
    for number, value in enumerate(values):
        box = client.start(size="small", secrets=[f"V{number}"])
        out = client.exec(box, f'printf %s "$V{number}" | sha256sum | cut -c1-8; printf %s "$V{number}" | wc -c').data["stdout"].split()
        assert out == [hashlib.sha256(value.encode()).hexdigest()[:8], str(len(value.encode()))], number
        client.stop(box)


def test_how_many(new_server):
    instance = new_server()
    for number in range(100):
        put(instance, f"N{number}", f"value {number:04}")
    status, answer = rest(instance, "PUT", "/v1/secrets/ONE_MORE", {"value": "a value"})
    assert status == 409 and "100" in answer["error"] and "delete" in answer["error"]
    put(instance, "N5", "replaced")
    client = instance.client()
    box = client.start(secrets=[f"N{number}" for number in range(100)])
    out = client.exec(box, "env | grep -c '^N[0-9]*='; echo $N7 $N99").data["stdout"]
    assert out == "100\n[secret N7] [secret N99]\n"


def test_accounts_are_apart(new_server):
    instance = new_server()
    put(instance, "TOKEN", "the first account's")
    database = sqlite3.connect(instance.state / "state.db", timeout=30)
    with database:
        database.execute("INSERT INTO accounts VALUES ('acc_other', 'other', 0)")
    other = instance.key("second")
    with database:
        database.execute("UPDATE keys SET account_id = 'acc_other' WHERE name = 'second'")
    assert rest(instance, "GET", "/v1/secrets", key=other)[1] == {"secrets": []}
    assert rest(instance, "DELETE", "/v1/secrets/TOKEN", key=other)[0] == 404
    put(instance, "TOKEN", "the other account's", key=other)
    mine, theirs = instance.client(), instance.client(key=other)
    box, foreign = mine.start(secrets=["TOKEN"]), theirs.start(secrets=["TOKEN"])
    assert (length(mine, box), length(theirs, foreign)) == (len("the first account's"), len("the other account's"))
    unknown = theirs.tool("sandbox_secrets", {"id": box, "names": ["TOKEN"]})
    assert unknown.is_error and "no box" in unknown.text
    # A row that is moved to another account or name in the store opens there for nobody.
    with database:
        database.execute("DELETE FROM secrets WHERE account_id = 'acc_other'")
        database.execute("UPDATE secrets SET account_id = 'acc_other'")
    stolen = theirs.tool("sandbox_start", {"goal": "steal", "secrets": ["TOKEN"]})
    assert stolen.is_error and "damaged" in stolen.text
    database.close()
    theirs.stop(foreign)


def test_a_browser_needs_its_csrf_token(server):
    browser = people(server)
    cookie = "; ".join(f"{name}={value}" for name, value in browser.cookies.items())
    status, _ = rest(server, "PUT", "/v1/secrets/TOKEN", {"value": "from a page"}, headers={"Authorization": "", "Cookie": cookie})
    assert status in (401, 403)
    assert rest(server, "GET", "/v1/secrets")[1] == {"secrets": []}


# --- tools -----------------------------------------------------------------------------------------------------------
def test_in_a_box_from_the_start(server, client):
    put(server, "TOKEN", "s3cret-value-1")
    assert client.tool("sandbox_secrets", {}).data["names"] == ["TOKEN"]
    box = client.start(goal="use s3cret-value-1", secrets=["TOKEN", "TOKEN"])
    assert length(client, box) == 14
    assert printed(client, box) == MASKED
    assert MASKED in printed(client, box, 'printf "a%sb" "$TOKEN" | base64 -w0')
    assert client.tool("sandbox_secrets", {"id": box}).data == {"id": box, "names": ["TOKEN"]}
    assert client.tool("sandbox_status", {"id": box}).data["secrets"] == ["TOKEN"]
    assert client.tool("sandbox_status", {"id": box}).data["goal"] == f"use {MASKED}"
    assert rest(server, "GET", "/v1/secrets")[1]["secrets"][0]["lastUsedAt"]
    assert client.exec(box, "grep -rl s3cret-value-1 / --include=* -s --exclude-dir=proc --exclude-dir=sys --exclude-dir=usr | head").data["stdout"] == "", "on no disk"
    other = client.start()
    assert length(client, other) == 0 and client.tool("sandbox_secrets", {"id": other}).data["names"] == []
    assert printed(client, other, "echo s3cret-value-1") == "s3cret-value-1\n", "a box without it is not looked at"
    client.stop(box)
    client.stop(other)
    database = sqlite3.connect(server.state / "state.db")
    assert database.execute("SELECT count(*) FROM box_secrets").fetchone() == (0,)
    database.close()


@pytest.mark.parametrize("names, words", [
    (["NOPE"], '"NOPE"'), (["TOKEN", "NOPE"], '"NOPE"'), (["token"], '"token"'), ([""], "secrets"), (["A B"], "secrets"), ("TOKEN", "secrets"), ([5], "secrets"),
    (["X"] * 101, "secrets"), (["A" * 65], "secrets"), (["PATH"], "PATH"), ([None], "secrets"), ([["TOKEN"]], "secrets"),
])
def test_what_does_not_exist_starts_nothing(server, client, names, words):
    put(server, "TOKEN", "s3cret-value-1")
    before = server.boxes_on_disk()
    result = client.tool("sandbox_start", {"goal": "nothing", "secrets": names})
    assert result.is_error and words in result.text and "nothing was" in result.text, result.text
    assert server.boxes_on_disk() == before and client.tool("sandbox_list", {}).data["boxes"] == []


def test_into_a_running_box(server, client, box):
    put(server, "TOKEN", "s3cret-value-1")
    put(server, "OTHER", "s3cret-value-two")
    running = client.exec(box, "until [ -e /work/go ]; do sleep 0.05; done; echo ${#TOKEN}; sh -c 'echo ${#TOKEN}'", background=True).data["bgId"]
    for arguments, words in (({"names": ["TOKEN"]}, "`id`"), ({"id": box, "names": ["TOKEN", "NOPE"]}, '"NOPE"'), ({"id": box, "names": []}, "names"),
                             ({"id": "nosuchbox", "names": ["TOKEN"]}, "no box"), ({"id": "nosuchbox"}, "no box"), ({"id": box, "names": "TOKEN"}, "names"),
                             ({"id": box, "value": "x"}, "value")):
        result = client.tool("sandbox_secrets", arguments)
        assert result.is_error and words in result.text, (arguments, result.text)
    assert length(client, box) == 0, "all of them or none"
    given = client.tool("sandbox_secrets", {"id": box, "names": ["TOKEN", "OTHER"]}).data
    assert given["names"] == ["TOKEN", "OTHER"] == given["given"] and "from now on" in given["next"]
    assert length(client, box) == 14 and length(client, box, "OTHER") == 16
    client.exec(box, "touch go")
    assert client.tool("sandbox_procs", {"id": box, "action": "wait", "bgId": running}).data["stdout"] == "0\n0\n", "what ran already has them not"
    # Given again after a change: the new value; both are masked.
    put(server, "TOKEN", "s3cret-value-one-more")
    assert length(client, box) == 14
    client.tool("sandbox_secrets", {"id": box, "names": ["TOKEN"]})
    client.tool("sandbox_secrets", {"id": box, "names": ["TOKEN"]})
    assert length(client, box) == 21
    assert printed(client, box, 'echo "$TOKEN" s3cret-value-1 s3cret-value-two') == f"{MASKED} {MASKED} [secret OTHER]\n"
    database = sqlite3.connect(server.state / "state.db")
    assert database.execute("SELECT count(*) FROM box_secrets WHERE box_id = ?", (box,)).fetchone() == (3,), "the same value is kept once"
    database.close()
    rest(server, "DELETE", "/v1/secrets/TOKEN")
    assert printed(client, box) == MASKED and length(client, box) == 21


def test_how_much_a_box_takes(server, client, box):
    for number in range(3):
        put(server, f"BIG{number}", f"{number}" * 16384)
    result = client.tool("sandbox_start", {"goal": "too much", "secrets": ["BIG0", "BIG1", "BIG2"]})
    assert result.is_error and "32 KiB" in result.text
    assert not client.tool("sandbox_secrets", {"id": box, "names": ["BIG0", "BIG1"]}).is_error
    result = client.tool("sandbox_secrets", {"id": box, "names": ["BIG2"]})
    assert result.is_error and "32 KiB" in result.text
    assert length(client, box, "BIG1") == 16384 and length(client, box, "BIG2") == 0
    assert printed(client, box, 'printf "%s" "$BIG0$BIG1"') == "[secret BIG0][secret BIG1]"
    for number in range(250):
        put(server, "TOKEN", f"rotated {number:03}")
        if client.tool("sandbox_secrets", {"id": box, "names": ["TOKEN"]}).is_error:
            break
    else:
        raise AssertionError("a box takes any number of copies")


def test_an_id_is_no_place_for_a_secret(server, client, box):
    put(server, "TOKEN", "s3cret-value-1")
    client.tool("sandbox_secrets", {"id": box, "names": ["TOKEN"]})
    result = client.exec(box, "true", execId="run-s3cret-value-1")
    assert result.is_error and "execId" in result.text and "s3cret" not in result.text
    result = client.tool("sandbox_start", {"goal": "x", "secrets": ["TOKEN"], "services": [{"name": "s3cret-value-1", "port": 80}]})
    assert result.is_error and "services" in result.text
    assert client.exec(box, "echo $TOKEN | tr a-z A-Z").data["stdout"] == "S3CRET-VALUE-1\n", "what is no spelling we know is not masked (docs/secrets.md)"


def test_files_are_exact(server, client, box):
    put(server, "TOKEN", "s3cret-value-1")
    client.tool("sandbox_secrets", {"id": box, "names": ["TOKEN"]})
    client.exec(box, 'printf "%s" "$TOKEN" > held; printf x > "$TOKEN"')
    got = client.tool("sandbox_get", {"id": box, "path": "held"}).data
    assert urllib.request.urlopen(got["url"]).read() == b"s3cret-value-1"
    named = client.tool("sandbox_get", {"id": box, "path": "s3cret-value-1"})
    assert named.data["path"] == MASKED and "s3cret" not in json.dumps(named.data)


def test_start_waits_in_the_queue_without_them(new_server):
    """A secret that is deleted while a start waits for room: the start fails and leaves nothing."""
    instance = new_server(arguments=["--max-boxes", "1"])
    client, waiting = instance.client(), instance.client()
    put(instance, "TOKEN", "s3cret-value-1")
    box = client.start()
    answer = []
    thread = threading.Thread(target=lambda: answer.append(waiting.tool("sandbox_start", {"goal": "wait", "secrets": ["TOKEN"], "waitForCapacitySec": 60},
                                                                        progress="p", headers={"X-Psbx-Tool-Wait-Sec": "60"})))
    thread.start()
    until(lambda: client.tool("sandbox_start", {"goal": "full"}).is_error)
    rest(instance, "DELETE", "/v1/secrets/TOKEN")
    client.stop(box)
    thread.join(60)
    assert answer and (answer[0].is_error and '"TOKEN"' in answer[0].text and "nothing" in answer[0].text or not answer[0].is_error)
    if answer[0].is_error:
        assert client.tool("sandbox_list", {}).data["boxes"] == []


# --- at rest ---------------------------------------------------------------------------------------------------------
def test_the_key_file(new_server):
    instance = new_server()
    assert not (instance.state / "secrets.key").exists()
    put(instance, "TOKEN", "s3cret-value-1")
    key = instance.state / "secrets.key"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600 and key.stat().st_size == 32
    assert key.read_bytes() != (instance.state / "link.key").read_bytes()
    assert b"s3cret-value-1" not in (instance.state / "state.db").read_bytes() + (instance.state / "state.db-wal").read_bytes()


def broken(instance, client, words):
    """Nothing works that needs the key, and each says why; everything else goes on."""
    status, answer = rest(instance, "PUT", "/v1/secrets/OTHER", {"value": "another value"})
    assert status == 500 and answer["code"] == "secrets_key" and words in answer["error"], answer
    result = client.tool("sandbox_start", {"goal": "x", "secrets": ["TOKEN"]})
    assert result.is_error and words in result.text
    box = client.start()
    assert printed(client, box, "echo fine") == "fine\n"
    result = client.tool("sandbox_secrets", {"id": box, "names": ["TOKEN"]})
    assert result.is_error and words in result.text
    client.stop(box)
    assert client.tool("sandbox_secrets", {}).data["names"] == ["TOKEN"]


def test_without_the_key(new_server):
    instance = new_server()
    client = instance.client()
    put(instance, "TOKEN", "s3cret-value-1")
    box = client.start(secrets=["TOKEN"])
    instance.stop()
    key = instance.state / "secrets.key"
    key.rename(instance.base / "kept.key")
    instance.start()
    client = instance.client()
    broken(instance, client, "secrets.key is missing")
    # What a box says that holds some cannot be masked: nothing of it is shown. It can be looked at and stopped.
    for tool, arguments in (("sandbox_exec", {"cmd": "echo $TOKEN", "note": "x"}), ("sandbox_procs", {"action": "list"}), ("sandbox_get", {"path": "x"})):
        result = client.tool(tool, {"id": box, **arguments})
        assert result.is_error and "nothing it says can be shown" in result.text and "s3cret" not in result.text, result.text
    assert client.tool("sandbox_status", {"id": box}).data["secrets"] == ["TOKEN"]
    for mode, size, words in ((0o644, 32, "chmod 600"), (0o600, 31, "32 bytes"), (0o600, 33, "32 bytes"), (0o600, 0, "32 bytes")):
        key.write_bytes(b"k" * size)
        key.chmod(mode)
        os.chown(key, os.stat(instance.state / "state.db").st_uid, -1)
        broken(instance, client, words)
    key.unlink()
    key.mkdir()
    broken(instance, client, "secrets.key")
    key.rmdir()
    (instance.base / "kept.key").rename(key)
    assert printed(client, box) == MASKED and length(client, box) == 14, "with the file back nothing was lost"


def test_with_another_key(new_server):
    instance = new_server()
    client = instance.client()
    put(instance, "TOKEN", "s3cret-value-1")
    box = client.start(secrets=["TOKEN"])
    instance.stop()
    (instance.state / "secrets.key").write_bytes(b"k" * 32)
    instance.start()
    client = instance.client()
    result = client.tool("sandbox_start", {"goal": "x", "secrets": ["TOKEN"]})
    assert result.is_error and "another secrets.key" in result.text
    result = client.exec(box, "echo $TOKEN")
    assert result.is_error and "another secrets.key" in result.text
    assert client.stop(box).data["ok"] is True
    put(instance, "TOKEN", "s3cret-value-again")
    box = client.start(secrets=["TOKEN"])
    assert printed(client, box) == MASKED and length(client, box) == 18


def test_a_new_key_once_nothing_is_sealed(new_server):
    instance = new_server()
    put(instance, "TOKEN", "s3cret-value-1")
    (instance.state / "secrets.key").unlink()
    assert rest(instance, "PUT", "/v1/secrets/TOKEN", {"value": "a value"})[0] == 500
    assert rest(instance, "DELETE", "/v1/secrets/TOKEN")[0] == 204
    put(instance, "TOKEN", "a new value")
    assert (instance.state / "secrets.key").stat().st_size == 32


def test_after_a_kill(new_server):
    """The box has its secrets, and the server knows which, also when both the server and what it knew are gone."""
    instance = new_server()
    client = instance.client()
    put(instance, "TOKEN", "s3cret-value-1")
    box = client.start(secrets=["TOKEN"])
    job = client.exec(box, 'while :; do echo "$TOKEN"; sleep 0.05; done', background=True).data["bgId"]
    rest(instance, "DELETE", "/v1/secrets/TOKEN")
    instance.kill()
    instance.start()
    client = instance.client()
    assert length(client, box) == 14 and printed(client, box) == MASKED
    tail = client.tool("sandbox_procs", {"id": box, "action": "wait", "bgId": job, "timeoutSec": 1, "tail": 5}).data["stdout"]
    assert tail.count(MASKED) >= 4 and "s3cret" not in tail
    client.stop(box)


def test_a_box_that_dies_takes_them_along(new_server):
    instance = new_server()
    client = instance.client()
    put(instance, "TOKEN", "s3cret-value-1")
    box = client.start(secrets=["TOKEN"])
    os.kill(instance.box_pid(box), signal.SIGKILL)
    until(lambda: client.tool("sandbox_status", {"id": box}).data["status"] == "lost")
    database = sqlite3.connect(instance.state / "state.db")
    until(lambda: database.execute("SELECT count(*) FROM box_secrets").fetchone() == (0,))
    database.close()


# --- the page --------------------------------------------------------------------------------------------------------
def test_the_page(new_server):
    instance = new_server()
    browser = people(instance)
    assert Browser(instance.url).get("/settings/secrets").heading == "Sign in"
    assert 'href="/settings/secrets"' in browser.get("/settings").body
    page = browser.get("/settings/secrets")
    assert page.status == 200 and "No secret is set." in page.body
    page = browser.submit(page, {"name": "TOKEN", "value": "line one\r\nline two\r\n\r\n"}, action="/settings/secrets")
    assert page.status == 200 and "TOKEN is set." in page.body and "line one" not in page.body
    client = instance.client()
    box = client.start(secrets=["TOKEN"])
    assert client.exec(box, 'printf %s "$TOKEN" | md5sum').data["stdout"].split()[0] == hashlib.md5(b"line one\nline two").hexdigest()
    for fields, words in (({"name": "1X", "value": "a fine value"}, 'id="name-error"'), ({"name": "PATH", "value": "a fine value"}, 'id="name-error"'),
                          ({"name": "", "value": "a fine value"}, 'id="name-error"'), ({"name": "A<b>", "value": "a fine value"}, "A&lt;b&gt;"),
                          ({"name": "SHORT", "value": "12345\n\n\n"}, 'id="value-error"'), ({"name": "LONG", "value": "x" * 16385}, 'id="value-error"'),
                          ({"name": "EMPTY", "value": ""}, 'id="value-error"')):
        page = browser.submit(browser.get("/settings/secrets"), fields, action="/settings/secrets")
        assert page.status == 422 and words in page.body and "a fine value" not in page.body, fields
    page = browser.submit(browser.get("/settings/secrets"), {"name": "HUGE", "value": "x" * 70000}, action="/settings/secrets")
    assert page.status == 413
    # The same form twice, a stranger's, and one without its token.
    page = browser.get("/settings/secrets")
    assert browser.submit(page, {"name": "ONCE", "value": "a fine value"}, action="/settings/secrets").status == 200
    assert browser.submit(page, {"name": "TWICE", "value": "a fine value"}, action="/settings/secrets").status == 403
    form = browser.get("/settings/secrets").form("/settings/secrets")["fields"]
    assert browser.post("/settings/secrets", {**form, "name": "EVIL", "value": "a fine value"}, headers={"Origin": "http://evil.example", "Sec-Fetch-Site": "cross-site"}).status == 403
    assert browser.post("/settings/secrets", {"do": "set", "name": "EVIL", "value": "a fine value"}).status == 403
    token = browser.get("/settings/secrets").form("/settings/secrets")["fields"]["csrf"]
    assert browser.post("/settings/secrets", {"csrf": token, "do": "burn", "name": "TOKEN"}).status == 400
    assert [row["name"] for row in rest(instance, "GET", "/v1/secrets")[1]["secrets"]] == ["ONCE", "TOKEN"]
    token = browser.get("/settings/secrets").form("/settings/secrets")["fields"]["csrf"]
    page = browser.post("/settings/secrets", {"csrf": token, "do": "delete", "name": "ONCE"})
    assert page.status == 200 and "ONCE is deleted." in page.body
    assert "<script>" not in browser.get("/settings/secrets?set=%3Cscript%3E&deleted=%22").body
    assert browser.get("/settings/secrets?set=ANY").status == 200
    (instance.state / "secrets.key").rename(instance.base / "elsewhere")
    page = browser.submit(browser.get("/settings/secrets"), {"name": "OTHER", "value": "a fine value"}, action="/settings/secrets")
    assert page.status == 500 and "secrets.key" in page.body
    assert PASSWORD not in page.body
