#!/usr/bin/env python3
"""CPU per hello request of the http/ folder, as a ratio to a bare libuv + http_parser server, interleaved in one run.

    bench-http.py DEMO_SERVER PEER [ROUNDS]

Both programs print their port; wrk makes the load over loopback. Ends with one line: the ratio of the medians.
"""

import os
import re
import shutil
import statistics
import subprocess
import sys

TICK = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as f:
        fields = f.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def measure(server):
    process, port = server
    before = cpu_seconds(process.pid)
    out = subprocess.run(["wrk", "-t1", "-c50", "-d3s", f"http://127.0.0.1:{port}/hello"], check=True, capture_output=True,
                         text=True).stdout
    requests = int(re.search(r"(\d+) requests in", out).group(1))
    if "Non-2xx" in out or not requests:
        raise RuntimeError(out)
    return (cpu_seconds(process.pid) - before) / requests * 1e6


def main():
    if not shutil.which("wrk"):
        print("wrk is not installed")
        return 77
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 5
    servers = []
    for program in sys.argv[1:3]:
        process = subprocess.Popen([program], stdout=subprocess.PIPE, text=True)
        servers.append((process, int(process.stdout.readline())))
    try:
        figures = ([], [])
        for _ in range(rounds):
            for side in (0, 1):
                figures[side].append(measure(servers[side]))
    finally:
        for process, _ in servers:
            process.kill()
            process.wait()
    ours, peer = (statistics.median(side) for side in figures)
    print(f"hello: {ours:.1f} us CPU per request, libuv + http_parser {peer:.1f} us, ratio {ours / peer:.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
