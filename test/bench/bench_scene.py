"""A scene through the server, against nginx as a proxy to the same service in the same box: requests a second, latency, bytes both ways, and
WebSocket messages. nginx has one worker, kept connections to the service and no buffering, as one sets it up for a dev server; and it has the same
way to the service as the server has: its listening socket is this machine's, its connections are made inside the box's network."""

import os
import re
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

from benchlib import TOP, Row, median, note

sys.path.insert(0, str(TOP / "test" / "e2e"))
from sceneclient import Scene, WebSocket, put  # noqa: E402

TITLE = "a service in a box, seen through its scene"

SERVICE = """worker_processes 1; daemon off; error_log /dev/null; pid /tmp/nginx.pid;
events {{ worker_connections 2048; }}
http {{ access_log off; keepalive_requests 100000000; sendfile on; client_max_body_size 0; client_body_temp_path /tmp/body; proxy_temp_path /tmp/p;
  fastcgi_temp_path /tmp/f; uwsgi_temp_path /tmp/u; scgi_temp_path /tmp/s;
  server {{ listen 127.0.0.1:8000; root /work/www;
    location = /small {{ default_type text/plain; return 200 "{small}"; }} }} }}
"""

PEER = """worker_processes 1; daemon off; error_log /dev/null; pid {folder}/pid;
events {{ worker_connections 2048; }}
http {{ access_log off; keepalive_requests 100000000; client_max_body_size 0; client_body_temp_path {folder}/body; proxy_temp_path {folder}/p;
  fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  map $http_upgrade $connection_upgrade {{ default upgrade; '' ''; }}
  upstream web {{ server 127.0.0.1:8000; keepalive 128; keepalive_requests 100000000; }}
  upstream echo {{ server 127.0.0.1:8001; keepalive 128; }}
  server {{ listen 127.0.0.1:{port} backlog=1024;
    proxy_http_version 1.1; proxy_buffering off; proxy_request_buffering off;
    proxy_set_header Host localhost:8000; proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection $connection_upgrade;
    proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for; proxy_set_header X-Forwarded-Host $host; proxy_set_header X-Forwarded-Proto http;
    location / {{ proxy_pass http://web; }} location /ws {{ proxy_pass http://echo; }} location /upload {{ proxy_pass http://echo; }} }} }}
"""


class Side:
    """One way to the service: an address, and the Host that is asked for."""

    def __init__(self, port, host, echo_host=None, pids=lambda: ()):
        self.port, self.host, self.echo_host, self.pids = port, host, echo_host or host, pids

    def wrk(self, connections, seconds):
        done = subprocess.run(["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--latency", "-H", f"Host: {self.host}",
                               f"http://127.0.0.1:{self.port}/small"], stdout=subprocess.PIPE, text=True, check=True).stdout
        if "Non-2xx" in done or "Socket errors" in done:
            raise RuntimeError(done)
        rate = float(done.split("Requests/sec:")[1].split()[0])
        middle, unit = re.search(r"^\s+50%\s+([0-9.]+)(us|ms|s)$", done, re.M).groups()
        return rate, float(middle) * {"us": 1, "ms": 1e3, "s": 1e6}[unit]

    def cpu_each(self, seconds):
        """Microseconds of processor for one request."""
        before = self.cpu()
        rate, _ = self.wrk(32, seconds)
        return (self.cpu() - before) / (rate * seconds) * 1e6

    def cpu(self):
        total = 0
        for pid in self.pids():
            times = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
            total += int(times[11]) + int(times[12])
        return total / os.sysconf("SC_CLK_TCK")

    def curl(self, path, *more, host=None):
        done = subprocess.run(["curl", "-sS", "-f", "-o", "/dev/null", "-w", "%{speed_download} %{speed_upload}", "-H", f"Host: {host or self.host}", "-H", "Expect:",
                               *more, f"http://127.0.0.1:{self.port}{path}"], stdout=subprocess.PIPE, text=True, check=True).stdout
        return tuple(float(x) / 1e6 for x in done.split())

    def echo(self, messages, size):
        """Microseconds for one message there and back."""
        class At:
            host, origin = self.echo_host, f"http://{self.echo_host}"

            def raw(_):
                return socket.create_connection(("127.0.0.1", self.port))
        ws = WebSocket(At(), "/ws")
        ws.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        data = os.urandom(size)
        ws.echo(data)
        began = time.perf_counter()
        for _ in range(messages):
            if ws.echo(data) != data:
                raise RuntimeError("an echo came back changed")
        took = time.perf_counter() - began
        ws.close()
        return took / messages * 1e6


def start(client, box, command, port):
    job = client.exec(box, command, background=True).data["bgId"]
    ready = client.tool("sandbox_procs", {"id": box, "action": "wait", "bgId": job, "until": "ready", "readyPort": port})
    if not ready.data.get("ready"):
        raise RuntimeError(ready.text)


def service_box(bench, instance):
    """A box with the service; its PID 1."""
    client = instance.client()
    data = client.tool("sandbox_start", {"goal": "measure a scene", "size": "large",
                                         "services": [{"name": "web", "port": 8000}, {"name": "echo", "port": 8001}]}).data
    box = data["id"]
    put(client, box, "svc", ("nginx.conf", SERVICE.format(small="x" * 500).encode()), ("service.py", TOP / "test/e2e/scenes/service.py"))
    client.exec(box, f"mkdir -p /work/www && head -c {bench.rounds(512, 64) << 20} /dev/urandom > /work/www/large")
    start(client, box, "exec nginx -c /work/svc/nginx.conf", 8000)
    start(client, box, "exec python3 svc/service.py 8001 echo", 8001)
    return [Scene(instance, s["url"]) for s in data["services"]], instance.box_pid(box)


def peer(bench, pid):
    folder = bench.scratch / "nginx"
    folder.mkdir()
    folder.chmod(0o777)
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    port = listener.getsockname()[1]
    (folder / "conf").write_text(PEER.format(folder=folder, port=port))
    # nginx takes listening sockets over by this variable, as in its own upgrades.
    process = subprocess.Popen(["nsenter", "-n", "-t", str(pid), "nginx", "-c", str(folder / "conf"), "-p", str(folder)], pass_fds=[listener.fileno()],
                               env={**os.environ, "NGINX": f"{listener.fileno()};"})
    Side(port, f"127.0.0.1:{port}").curl("/small")
    listener.close()
    return process, port


def rounds_of(number, sides, measure):
    """[[values of ours], [values of nginx]], interleaved, the first round thrown away."""
    found = [[], []]
    for i in range(number + 1):
        for at in ((0, 1) if i % 2 else (1, 0)):
            value = measure(sides[at])
            if i:
                found[at].append(value)
    return found


def rows(bench, sides):
    rounds, seconds = bench.rounds(7, 2), bench.rounds(3, 1)
    ours, other = rounds_of(rounds, sides, lambda s: s.wrk(32, seconds)[0])
    yield Row("requests, 32 at once", median(ours), "nginx", median(other), median(ours) / median(other), "1/s", at_least=0.9)
    ours, other = rounds_of(rounds, sides, lambda s: s.cpu_each(seconds))
    yield Row("processor for a request", median(ours), "nginx", median(other), median(other) / median(ours), "us", at_least=0.9)
    ours, other = rounds_of(rounds, sides, lambda s: s.wrk(1, seconds)[1])
    yield Row("one request, median", median(ours), "nginx", median(other), median(other) / median(ours), "us", at_least=0.9)
    ours, other = rounds_of(rounds, sides, lambda s: s.curl("/large")[0])
    yield Row("download", median(ours), "nginx", median(other), median(ours) / median(other), "MB/s", at_least=0.9)
    large = bench.scratch / "large"
    large.write_bytes(os.urandom(1 << 20) * bench.rounds(256, 32))
    ours, other = rounds_of(rounds, sides, lambda s: s.curl("/upload", "-T", str(large), "-X", "POST", host=s.echo_host)[1])
    yield Row("upload", median(ours), "nginx", median(other), median(ours) / median(other), "MB/s", at_least=0.9)
    for size in (100, 100_000):
        ours, other = rounds_of(rounds, sides, lambda s, size=size: s.echo(bench.rounds(2000, 200) // (1 if size < 1000 else 20), size))
        yield Row(f"WebSocket echo, {size} bytes", median(ours), "nginx", median(other), median(other) / median(ours), "us", at_least=0.9)


def run(bench):
    for program in ("nginx", "wrk", "curl"):
        bench.need(program, "the measuring ends and the peer")
    instance = bench.server()
    (web, echo), pid = service_box(bench, instance)
    process, port = peer(bench, pid)
    try:
        mine = Side(instance.port, web.host, echo.host, lambda: [instance.process.pid])
        theirs = Side(port, f"127.0.0.1:{port}", pids=lambda: Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split())
        yield from rows(bench, (mine, theirs))
        with open(f"/proc/{instance.process.pid}/status") as f:
            resident = next(line.split()[1] for line in f if line.startswith("VmRSS"))
        note(f"the server holds {int(resident) // 1024} MiB after all of it")
    finally:
        process.terminate()
        process.wait()
        shutil.rmtree(bench.scratch / "nginx", ignore_errors=True)
