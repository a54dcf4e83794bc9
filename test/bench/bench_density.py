"""200 idle boxes: what each costs in memory, and that nothing is left when they are gone."""

import time

from benchlib import Row, note
from mcpclient import gather

TITLE = "200 idle boxes"


def available_kib():
    with open("/proc/meminfo", encoding="ascii") as handle:
        for line in handle:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1])
    raise RuntimeError("no MemAvailable")


def settled():
    """Available memory once it stands still: the median of readings over a second."""
    readings = []
    for _ in range(20):
        readings.append(available_kib())
        time.sleep(0.05)
    return sorted(readings)[len(readings) // 2]


def run(bench):
    count = bench.rounds(200, 30)
    instance = bench.server(warm=0, arguments=["--max-boxes", str(count + 10)])
    clients = [instance.client() for _ in range(4)]
    warm = clients[0].start("warm up", size="small")
    clients[0].exec(warm, "true")
    time.sleep(1)
    before = settled()
    started = time.perf_counter()

    def some(client, number):
        return [client.start(f"idle box {n}", size="small") for n in range(number, count, len(clients))]

    boxes = [box for found in gather([lambda c=c, n=n: some(c, n) for n, c in enumerate(clients)]) for box in found]
    note(f"{count} boxes started in {time.perf_counter() - started:.2f} s by 4 clients")
    time.sleep(2)
    each = (before - settled()) / 1024 / count
    started = time.perf_counter()

    def end(client, number):
        for box in boxes[number::len(clients)]:
            client.stop(box)
            client.stop(box)

    gather([lambda c=c, n=n: end(c, n) for n, c in enumerate(clients)])
    note(f"all stopped and deleted in {time.perf_counter() - started:.2f} s")
    yield Row("memory of an idle box", each, "1.5 MiB", 1.5, each / 1.5, unit="MiB", at_most=1)
    for client in clients:
        client.stop(warm)
    left = instance.finish()
    for line in left:
        note(f"left behind: {line}")
    yield Row("left after teardown", len(left), "nothing", 0, len(left), unit="things", at_most=0)
