"""`true` in a warm box through /mcp. Against fork and exec of the same `bash -c true` plus one bare loopback HTTP exchange, and `docker exec`."""

import subprocess

from benchlib import Caller, Row, Skip, docker_image, median, note, p95

TITLE = "run `true` in a warm box"


def docker(bench):
    image = docker_image(bench)
    name = f"psbx-bench-{bench.scratch.name[-6:]}"
    subprocess.run(["docker", "run", "--rm", "-d", "--name", name, image, "sleep", "1000"], stdout=subprocess.DEVNULL, check=True)
    return name, bench.floor("run", "docker", "exec", name, "true")


def run(bench):
    rounds = bench.rounds(400, 40)
    instance = bench.server()
    caller = Caller(instance, bench.floor("post", "127.0.0.1", instance.port))
    box = caller.client.start("measure how soon a command is answered")
    floor = bench.floor("spawn")
    container = None
    try:
        container, other = docker(bench)
    except Skip as reason:
        note(f"not against docker exec: {reason}")
        other = None
    ours, floors, others = [], [], []
    arguments = {"id": box, "cmd": "true", "note": "a measurement"}
    for number in range(rounds + 20):
        took, result = caller.call("sandbox_exec", arguments)
        if result["exitCode"] != 0:
            raise RuntimeError(result)
        least = floor.once()
        if number >= 20:
            ours.append(took)
            floors.append(least)
            if other is not None and number < 50:
                others.append(other.once())
    if container:
        subprocess.run(["docker", "rm", "-f", container], stdout=subprocess.DEVNULL, check=False)
    note(f"p95 {p95(ours) / 1000:.2f} ms against {p95(floors) / 1000:.2f} ms, {rounds} rounds")
    mine, least = median(ours) / 1000, median(floors) / 1000
    yield Row("exec true, warm box", mine, "fork/exec + HTTP", least, mine / least, at_most=3)
    if others:
        yield Row("exec true, warm box", mine, "docker exec", median(others) / 1000, median(others) / 1000 / mine, at_least=20)
