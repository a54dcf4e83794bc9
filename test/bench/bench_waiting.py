"""10,000 calls that wait, each on an event stream of its own: what the server spends on one, and whether heartbeats are on time."""

import json
import os
import resource
import selectors
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchlib import Row, median, note, p95

TITLE = "10,000 waiting calls"
HEARTBEAT = 20.0  # docs: a call that runs longer says so, as a message, at this interval
PER_JOB = 50
# A wait for a background job holds two descriptors of the server, the caller's connection and one to the box. A wait
# for a command that outlived its call holds one: the server reads that command already, once for all who wait.
FDS_BACKGROUND, FDS_LEFT = 2, 1


def resident_kib(pid):
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    return 0


def cpu_seconds(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def request(client, instance, number, box, job, wait):
    body = json.dumps({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {
        "name": "sandbox_procs", "_meta": {"progressToken": number},
        "arguments": {"id": box, "action": "wait", "bgId": job, "timeoutSec": wait}}}).encode()
    head = {"Host": f"127.0.0.1:{instance.port}", "Content-Length": str(len(body)), **client.headers()}
    return ("POST /mcp HTTP/1.1\r\n" + "".join(f"{k}: {v}\r\n" for k, v in head.items()) + "\r\n").encode() + body


def background_job(client, box):
    return box, client.exec(box, "sleep 600", note="something to wait for", background=True)["bgId"]


def left_command(client, box):
    """One whose call was answered, with a handle, before the command's end."""
    return box, client.tool("sandbox_exec", {"id": box, "cmd": "sleep 600", "note": "something to wait for", "timeoutSec": 900},
                            headers={"X-Psbx-Tool-Wait-Sec": "3"}, timeout=60)["bgId"]


def start_jobs(client, boxes, count):
    """Half of each kind, as many as the waiting calls need."""
    needed = -(-count // PER_JOB)
    with ThreadPoolExecutor(25) as pool:
        left = [pool.submit(left_command, client, boxes[i % len(boxes)]) for i in range(needed // 2)]
        return [background_job(client, boxes[i % len(boxes)]) for i in range(needed - needed // 2)] + [f.result() for f in left]


def run(bench):
    count = bench.rounds(10000, 200)
    beats = bench.rounds(3, 2)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    fit = (hard - 300 - count // PER_JOB) * 2 // (FDS_BACKGROUND + FDS_LEFT)
    if count > fit:
        count = fit
        note(f"a process may open {hard} files here, which is enough for {count} calls")
    instance = bench.server()
    client = instance.client()
    boxes = [client.start("hold many waiting calls") for _ in range(8)]
    jobs = start_jobs(client, boxes, count)
    before = resident_kib(instance.process.pid)
    wait = int(HEARTBEAT * beats + 60 + count / 100)

    chooser = selectors.DefaultSelector()
    started, seen, refused = {}, {}, []
    for number in range(count):
        box, job = jobs[number // PER_JOB]
        sock = socket.create_connection(("127.0.0.1", instance.port))
        sock.sendall(request(client, instance, 500000 + number, box, job, wait))
        sock.setblocking(False)
        chooser.register(sock, selectors.EVENT_READ, number)
        started[number], seen[number] = time.monotonic(), []
        if number % 200 == 199:
            drain(chooser, started, seen, refused, 0)
    last_start = time.monotonic()
    note(f"{count} calls begun within {last_start - started[0]:.0f} s")
    peak = 0
    cpu, cpu_since = cpu_seconds(instance.process.pid), last_start
    end = last_start + HEARTBEAT * beats + 5
    while time.monotonic() < end:
        drain(chooser, started, seen, refused, 0.2)
        if now_and_then(last_start):
            peak = max(peak, resident_kib(instance.process.pid))
    share = (cpu_seconds(instance.process.pid) - cpu) / (time.monotonic() - cpu_since)
    during = max(peak, resident_kib(instance.process.pid))
    for key in list(chooser.get_map().values()):
        key.fileobj.close()
    chooser.close()
    if refused:
        note(f"{len(refused)} of {count} calls were refused or ended early")
    late = [abs(at - HEARTBEAT * (beat + 1)) for times in seen.values() for beat, at in enumerate(times)]
    missing = sum(max(0, beats - len(times)) for times in seen.values())
    late_ones = sum(off > 1 for off in late)
    each = (during - before) / count
    yield Row("a waiting call, server memory", each, "24 KiB", 24, each / 24, unit="KiB", at_most=1)
    if late:
        note(f"{len(late)} heartbeats: off by {median(late) * 1000:.0f} ms in the median, p95 {p95(late) * 1000:.0f} ms, "
             f"at most {max(late) * 1000:.0f} ms; {missing} missing")
        yield Row("heartbeat off by (p95)", p95(late), "1 s", 1.0, p95(late), unit="s", at_most=1)
    yield Row("heartbeats not within their second", late_ones, "none", 0, late_ones, unit="", at_most=0)
    yield Row("CPU of one core", share * 100, "20 %", 20, share * 100 / 20, unit="%", at_most=1)
    yield Row("heartbeats missing", missing + len(refused), "none", 0, missing + len(refused), unit="", at_most=0)


def drain(chooser, started, seen, refused, timeout):
    for key, _ in chooser.select(timeout):
        data = key.fileobj.recv(65536)
        now = time.monotonic()
        if not data:
            chooser.unregister(key.fileobj)
            refused.append(key.data)
            continue
        if b"notifications/message" in data:
            seen[key.data].append(now - started[key.data])
        elif b"text/event-stream" not in data and b"HTTP/1.1 " in data:
            refused.append(key.data)


def now_and_then(since):
    return int((time.monotonic() - since) * 5) % 10 == 0
