"""Boxes that stand ready: taken by the next start that fits, filled again, owned by nobody, left behind by no end."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest
from instance import until


@pytest.fixture
def warm_server(new_server):
    """Makes servers with boxes that stand ready; returns (server, client)."""

    def make(*arguments, warm=None):
        server = new_server(arguments=list(arguments), warm=warm)
        return server, server.client()

    return make


def ready(client):
    text = client.rest("GET", "/metrics")[2].decode()
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("psbx_boxes_warm "))


def on_disk(server):
    return {path.name for path in server.state.glob("boxhost/boxes/*")}


def standing(server, client, count=1):
    """Waits until so many stand ready and nothing is on its way; returns all boxes there are."""
    until(lambda: ready(client) == count)
    return until(lambda: on_disk(server))


def test_a_start_takes_the_box_that_stands_ready(warm_server):
    server, client = warm_server()
    (first,) = standing(server, client)
    assert client.tool("sandbox_list", {"all": True})["boxes"] == [], "it belongs to nobody yet"
    assert client.tool("sandbox_status", {"id": first}).is_error
    assert client.exec(first, "true").is_error
    started = client.tool("sandbox_start", {"goal": "be quick", "name": "mine", "services": [{"name": "api", "port": 80}]})
    assert started["id"] == first and started["name"] == "mine" and started["size"] == "medium"
    said = client.exec(first, "hostname; getent hosts api | cut -d' ' -f1; ls -A /work; echo $$ > /work/mark")
    assert said["stdout"] == f"{first}\n127.0.0.1\n"
    # the next is another, made meanwhile, and knows nothing of the first
    boxes = standing(server, client)
    second = client.start()
    assert first in boxes and second in boxes and second != first
    assert client.exec(second, "cat /work/mark")["exitCode"] == 1
    for box in (first, second):
        client.stop(box)


def test_other_sizes_are_made_as_always(warm_server):
    server, client = warm_server()
    (first,) = standing(server, client)
    small = client.start(size="small")
    assert small != first and ready(client) == 1
    assert client.exec(small, "cat /sys/fs/cgroup/pids.max 2>/dev/null; true")["exitCode"] == 0
    assert client.tool("sandbox_status", {"id": small})["resources"]["pids"]["limit"] == 512
    taken = client.start()
    assert taken == first
    assert client.tool("sandbox_status", {"id": taken})["resources"]["pids"]["limit"] == 2048
    for box in (small, taken):
        client.stop(box)


def test_none_stands_ready_when_switched_off(warm_server):
    server, client = warm_server(warm=0)
    box = client.start()
    assert ready(client) == 0 and on_disk(server) == {box}
    client.stop(box)


def test_demand_makes_it_grow_up_to_its_limit(warm_server):
    server, client = warm_server(warm=3)
    standing(server, client)
    with ThreadPoolExecutor(8) as pool:  # more at once than stand ready: every one gets a box of its own
        boxes = list(pool.map(lambda _: client.start(), range(8)))
    assert len(set(boxes)) == 8
    until(lambda: ready(client) == 3)
    assert on_disk(server) >= set(boxes) and len(on_disk(server)) == 11
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda box: client.exec(box, "hostname")["stdout"], boxes)) == [f"{box}\n" for box in boxes]
        list(pool.map(client.stop, boxes))


def test_callers_go_before_the_pool(warm_server):
    server, client = warm_server("--max-boxes", "2", warm=4)
    (first,) = standing(server, client)
    one, two = client.start(size="small"), client.start()
    assert two == first
    assert client.tool("sandbox_start", {"goal": "one too many"}).is_error
    until(lambda: on_disk(server) == {one, two})
    client.stop(two)
    three = client.start(size="large")  # the place that the pool may have taken meanwhile
    until(lambda: on_disk(server) == {one, three})
    assert ready(client) == 0
    for box in (one, three):
        client.stop(box)


def test_one_that_ended_is_replaced(warm_server):
    server, client = warm_server()
    (first,) = standing(server, client)
    os.kill(server.box_pid(first), signal.SIGKILL)
    until(lambda: first not in on_disk(server) and ready(client) == 1)
    second = client.start()
    assert second != first and client.exec(second, "echo here")["stdout"] == "here\n"
    client.stop(second)


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_an_end_of_the_server_leaves_none(warm_server, how):
    server, client = warm_server()
    (first,) = standing(server, client)
    kept = client.start()
    assert kept == first
    (spare,) = standing(server, client) - {kept}
    getattr(server, how)()
    if how == "stop":
        assert on_disk(server) == {kept}
    server.start()
    client = server.client()
    until(lambda: spare not in on_disk(server) and ready(client) == 1)
    assert client.exec(kept, "echo still here")["stdout"] == "still here\n"
    assert [box["id"] for box in client.tool("sandbox_list", {"all": True})["boxes"]] == [kept]
    client.stop(kept)


def test_they_outlive_boxhost(warm_server):
    server, client = warm_server()
    (first,) = standing(server, client)
    old = server.boxhost_pid()
    os.kill(old, signal.SIGKILL)
    until(lambda: server.boxhost_pid() not in (None, old))
    until(lambda: server.get("/readyz")[0] == 200)
    box = client.start()
    assert box == first and client.exec(box, "echo well")["stdout"] == "well\n"
    client.stop(box)
