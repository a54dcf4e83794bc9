"""What masking costs: output of a box that holds a hundred secrets against the same output of one that holds none, and whether it stays in proportion
to the text. `true` as well: what a call costs that prints nothing."""

import secrets

from benchlib import Caller, Row, median, note
from secretlib import put

TITLE = "output of a box with 100 secrets"
MIB = 1 << 20


def run(bench):
    rounds = bench.rounds(5, 1)
    size = bench.rounds(64, 8)
    instance = bench.server()
    caller = Caller(instance, bench.floor("post", "127.0.0.1", instance.port))
    names = [f"N{number}" for number in range(100)]
    for name in names:
        put(instance, name, secrets.token_urlsafe(30))
    boxes = {"none": caller.client.start("print without secrets"), "all": caller.client.start("print with secrets", secrets=names)}
    # Text in lines, of every character a value could have.
    for box in boxes.values():
        caller.client.exec(box, f"head -c {size * MIB * 3 // 4} /dev/urandom | base64 | head -c {size * MIB} > text; head -c {size * MIB // 2} text > half")

    def take(box, cmd):
        return caller.call("sandbox_exec", {"id": boxes[box], "cmd": cmd, "note": "a measurement"})[0] / 1000

    found = {}
    for number in range(rounds + 1):
        for box in boxes:
            for cmd in ("cat text", "cat half", "true"):
                took = take(box, cmd)
                if number or bench.quick:
                    found.setdefault((box, cmd), []).append(took)
    middle = {key: median(values) for key, values in found.items()}
    note(f"{size} MiB, {rounds} rounds; the whole of it is stored for outputUrl on both sides")
    yield Row("exec that prints much", middle["all", "cat text"], "without secrets", middle["none", "cat text"],
              middle["all", "cat text"] / middle["none", "cat text"], at_most=3)
    yield Row("twice the output", middle["all", "cat text"], "half of it", middle["all", "cat half"], middle["all", "cat text"] / middle["all", "cat half"],
              at_most=2.5)
    yield Row("exec true", middle["all", "true"], "without secrets", middle["none", "true"], middle["all", "true"] / middle["none", "true"], at_most=1.5)
