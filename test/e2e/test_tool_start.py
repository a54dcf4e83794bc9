"""sandbox_start: its result, what it refuses and how, capacity and the queue, names of services, nothing left behind."""

import json
import os
import re
import resource
import threading

import pytest
from instance import until
from mcpclient import gather

TIME = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$")


def boxes(client, everything=False):
    return client.tool("sandbox_list", {"all": everything})["boxes"]


def box_folders(server):
    return sorted(path.name for path in server.state.glob("boxhost/boxes/*"))


def test_result_fields(client):
    result = client.tool("sandbox_start", {
        "goal": "say what a result holds", "name": "fields – é", "size": "small",
        "services": [{"name": "api", "port": 8080}, {"name": "front-end", "port": 80, "targetPort": 3000, "web": True}]})
    try:
        assert not result.is_error, result.text
        assert json.loads(result.content[0]["text"]) == result.raw["structuredContent"]
        data = result.data
        assert re.fullmatch(r"[a-z0-9]{4,32}", data["id"])
        assert data["name"] == "fields – é"
        assert data["goal"] == "say what a result holds"
        assert data["status"] == "running"
        assert data["size"] == "small"
        assert data["image"] == "host"
        assert TIME.match(data["createdAt"])
        assert data["appUrl"].startswith("http://127.0.0.1:")
        first, second = data["services"]
        assert (first["name"], first["port"], first["targetPort"], first["mode"], first["web"]) == ("api", 8080, 8080, "box", False)
        assert (second["name"], second["port"], second["targetPort"], second["web"]) == ("front-end", 80, 3000, True)
    finally:
        client.stop(result.data["id"])


def test_defaults_and_names_need_not_be_unique(client):
    one, two = client.start(name="same"), client.start(name="same")
    three = client.start()
    listed = {box["id"]: box for box in boxes(client)}
    assert one != two
    assert listed[one]["name"] == listed[two]["name"] == "same"
    assert listed[three]["size"] == "medium"
    assert listed[three]["name"]
    for box in (one, two, three):
        client.stop(box)


@pytest.mark.parametrize("arguments, words", [
    ({}, ["goal", "is required"]),
    ({"goal": ""}, ["goal"]),
    ({"goal": 7}, ["goal", "7", "string"]),
    ({"goal": "g", "name": "n" * 61}, ["name", "60"]),
    ({"goal": "g", "name": ""}, ["name"]),
    ({"goal": "g", "size": "gigantic"}, ["size", "gigantic", "small", "medium", "large"]),
    ({"goal": "g", "image": "debian:99"}, ["image", "debian:99", "host"]),
    ({"goal": "g", "services": {"name": "a"}}, ["services", "array"]),
    ({"goal": "g", "services": [{"name": "UPPER", "port": 1}]}, ["services", "name", "UPPER"]),
    ({"goal": "g", "services": [{"name": "a b", "port": 1}]}, ["services", "name", "a b"]),
    ({"goal": "g", "services": [{"name": "a"}]}, ["port", "is required"]),
    ({"goal": "g", "services": [{"name": "a", "port": 0}]}, ["port", "0"]),
    ({"goal": "g", "services": [{"name": "a", "port": 65536}]}, ["port", "65536"]),
    ({"goal": "g", "services": [{"name": "a", "port": 1.5}]}, ["port", "1.5"]),
    ({"goal": "g", "services": [{"name": "twice", "port": 1}, {"name": "twice", "port": 2}]}, ["services", "twice"]),
    ({"goal": "g", "services": [{"name": "localhost", "port": 1}]}, ["services", "localhost"]),
    ({"goal": "g", "restore": "abcdefgh"}, ["restore", "no box", "abcdefgh"]),
    ({"goal": "g", "restore": "abcdefgh", "size": "small"}, ["restore", "size", "nothing was started"]),
    ({"goal": "g", "waitForCapacitySec": -1}, ["waitForCapacitySec", "-1"]),
    ({"goal": "g", "colour": "red"}, ["colour"]),
    ({"goal": "nul \0 inside"}, ["goal", "NUL"]),
    ({"goal": "g", "name": "a\0b"}, ["name", "NUL"]),
])
def test_refusals_name_the_argument_and_the_value(server, client, arguments, words):
    before = box_folders(server)
    result = client.tool("sandbox_start", arguments)
    assert result.is_error
    for word in words:
        assert word in result.text, result.text
    assert box_folders(server) == before


def test_services_resolve_from_the_first_moment(client):
    box = client.start(services=[{"name": "db", "port": 5432}, {"name": "a-very-long-name-" + "x" * 40, "port": 1}])
    try:
        result = client.exec(box, "getent hosts db && getent hosts a-very-long-name-" + "x" * 40 + " && getent hosts localhost")
        assert result["exitCode"] == 0, result
        assert all(line.split()[0] in ("127.0.0.1", "::1") for line in result["stdout"].splitlines())
        assert len(result["stdout"].splitlines()) == 3
        # and something can listen and be reached there
        result = client.exec(box, "python3 -c \"import socket; s = socket.socket(); s.bind(('db', 5432)); s.listen();"
                                  " c = socket.create_connection(('db', 5432)); print('reached')\"")
        assert result["stdout"] == "reached\n", result
    finally:
        client.stop(box)


def test_starts_at_the_same_time(server, client):
    started = gather([client.start] * 8)
    assert len(set(started)) == 8
    assert set(started) <= {box["id"] for box in boxes(client)}
    said = gather([lambda box=box: client.exec(box, "hostname")["stdout"].strip() for box in started])
    assert len(set(said)) == 8
    gather([lambda box=box: client.stop(box) for box in started])
    assert not set(started) & set(box_folders(server))


def test_no_room_says_how_many_run_and_fit(new_server):
    server = new_server(arguments=["--max-boxes", "1"])
    client = server.client()
    box = client.start()
    result = client.tool("sandbox_start", {"goal": "one too many"})
    assert result.is_error
    for words in ("1 run", "1 fit", "sandbox_stop", "waitForCapacitySec", "nothing was started"):
        assert words in result.text, result.text
    assert box_folders(server) == [box]
    # a wait that ends without room says the same; the caller's own patience bounds it
    result = client.tool("sandbox_start", {"goal": "patient", "waitForCapacitySec": 600}, headers={"X-Psbx-Tool-Wait-Sec": "1"})
    assert result.is_error
    assert "1 fit" in result.text
    client.stop(box)
    client.stop(client.start())


def test_queue_is_fair_and_tells_its_place(new_server):
    server = new_server(arguments=["--max-boxes", "1"])
    client = server.client()
    box = client.start()
    lock, order, places, answers = threading.Lock(), [], {}, {}

    def queue_up(number, known):
        exchange = client.open("tools/call", {
            "name": "sandbox_start", "arguments": {"goal": f"number {number}", "waitForCapacitySec": 60},
            "_meta": {"progressToken": f"token-{number}"}}, headers={"X-Psbx-Tool-Wait-Sec": "60"})
        for message in exchange:
            if message.get("method") == "notifications/progress":
                assert message["params"]["progressToken"] == f"token-{number}"
                with lock:
                    places.setdefault(number, []).append(message["params"])
                known.set()
            elif "result" in message:
                with lock:
                    order.append(number)
                    answers[number] = message["result"]

    threads = []
    for number in (1, 2, 3):
        known = threading.Event()
        threads.append(threading.Thread(target=queue_up, args=(number, known), daemon=True))
        threads[-1].start()
        assert known.wait(20), "a waiting call did not tell its place"
        assert f"place {number} " in places[number][0]["message"]
    # nobody slips past those who wait
    assert client.tool("sandbox_start", {"goal": "impatient"}).is_error
    for number in (1, 2, 3):
        client.stop(box)
        until(lambda number=number: len(order) >= number)
        assert order == [1, 2, 3][:number]
        box = answers[number]["structuredContent"]["id"]
        assert len(boxes(client)) == 1
    for thread in threads:
        thread.join(20)
    assert any("place 1 " in note["message"] for note in places[3])
    for notes in places.values():
        values = [note["progress"] for note in notes]
        assert values == sorted(set(values)), "progress must grow"
    client.stop(box)


def test_a_cancelled_wait_leaves_the_queue(new_server):
    server = new_server(arguments=["--max-boxes", "1"])
    client = server.client()
    box = client.start()
    waiting = client.open("tools/call", {"name": "sandbox_start", "arguments": {"goal": "first", "waitForCapacitySec": 60},
                                         "_meta": {"progressToken": 1}}, headers={"X-Psbx-Tool-Wait-Sec": "60"})
    assert "place 1 " in next(iter(waiting))["params"]["message"]
    behind = client.open("tools/call", {"name": "sandbox_start", "arguments": {"goal": "second", "waitForCapacitySec": 60},
                                        "_meta": {"progressToken": 2}}, headers={"X-Psbx-Tool-Wait-Sec": "60"})
    messages = iter(behind)
    assert "place 2 " in next(messages)["params"]["message"]
    client.cancel(waiting.request_id)
    assert "place 1 " in next(messages)["params"]["message"]
    client.stop(box)
    answer = next(message for message in messages if "result" in message)
    assert not answer["result"]["isError"]
    assert [row["goal"] for row in boxes(client)] == ["second"]
    waiting.close()
    client.stop(answer["result"]["structuredContent"]["id"])


def test_nothing_is_left_of_a_failed_start(new_server):
    """boxhost runs out of descriptors at every point of making a box in turn."""
    server = new_server()
    client = server.client()
    box = client.start()
    client.stop(box)
    client.stop(box)
    boxhost = server.boxhost_pid()
    settled = until(lambda: sorted(os.listdir(f"/proc/{boxhost}/fd"), key=int))
    limits = resource.prlimit(boxhost, resource.RLIMIT_NOFILE)
    failures = 0
    for more in range(1, 60):
        resource.prlimit(boxhost, resource.RLIMIT_NOFILE, (int(settled[-1]) + more, limits[1]))
        result = client.tool("sandbox_start", {"goal": "cannot be made"})
        resource.prlimit(boxhost, resource.RLIMIT_NOFILE, limits)
        if not result.is_error:
            break
        failures += 1
        assert "nothing is left of it" in result.text
        assert boxes(client, everything=True) == []
        assert until(lambda: not server.box_leftovers(boxes_only=True)) is True
    assert failures, "no start failed"
    assert not result.is_error, "with descriptors to spare a start must work again"
    assert server.boxhost_pid() == boxhost, "boxhost itself must survive this"
    metrics = client.rest("GET", "/metrics")[2].decode()
    assert f"psbx_box_start_failures_total {failures}\n" in metrics
    assert "psbx_boxes_running 1\n" in metrics
    assert client.exec(result["id"], "echo works")["stdout"] == "works\n"


def test_a_start_that_is_cancelled_leaves_nothing(server, client):
    before = box_folders(server)
    exchanges = []
    for _ in range(6):
        number = f"cancel-{len(exchanges)}"
        sender = threading.Thread(target=lambda n=number: exchanges.append(n) or _quietly(client, n), daemon=True)
        sender.start()
        client.cancel(number)
        sender.join(30)
    # Each either was cancelled, or had been answered before: what is there is listed, and the rest is gone.
    until(lambda: {box["id"] for box in boxes(client)} >= set(box_folders(server)))
    for box in boxes(client):
        if box["goal"] == "perhaps cancelled":
            client.stop(box["id"])
    until(lambda: box_folders(server) == before)


def _quietly(client, number):
    exchange = client.open("tools/call", {"name": "sandbox_start", "arguments": {"goal": "perhaps cancelled"}}, request_id=number)
    try:
        for _ in exchange:
            pass
    finally:
        exchange.close()
