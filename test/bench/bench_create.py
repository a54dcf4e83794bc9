"""A box: sandbox_start and the first sandbox_exec answered, through MCP, as the server does it by itself (a box stands
ready and is taken), and from nothing (no box stands ready).

Against the floor (the system calls without which there is no such box), `crun run` of the same `true`, and `docker run`."""

import json
import subprocess
from pathlib import Path

from benchlib import Caller, Row, Skip, docker_image, median, note, p95, until

TITLE = "create a box and run the first command"


def crun_bundle(bench):
    bench.need("crun", "it is what boxes are compared with")
    bundle = bench.scratch / "bundle"
    root = bundle / "rootfs"
    for name in ("usr", "proc", "dev", "sys", "tmp"):
        (root / name).mkdir(parents=True, exist_ok=True)
    for name in ("bin", "lib", "lib64", "sbin"):
        if not (root / name).is_symlink():
            (root / name).symlink_to(f"usr/{name}")
    subprocess.run(["crun", "spec"], cwd=bundle, check=True)
    config = json.loads((bundle / "config.json").read_text())
    config["process"].update(args=["/usr/bin/true"], terminal=False)
    config["process"].pop("rlimits", None)
    config["root"] = {"path": "rootfs", "readonly": True}
    config["mounts"].append({"destination": "/usr", "type": "none", "source": "/usr", "options": ["rbind", "ro"]})
    (bundle / "config.json").write_text(json.dumps(config))
    return bundle


def crun(bench):
    """crun from a mount namespace of its own: a release that refuses mixed cgroup layouts sees a plain one there."""
    bundle = crun_bundle(bench)
    hidden = "umount /sys/fs/cgroup/unified 2>/dev/null || true; exec \"$@\"" \
        if Path("/sys/fs/cgroup/unified").is_dir() else "exec \"$@\""
    wrap = ["unshare", "--mount", "--propagation", "private", "sh", "-c", hidden, "sh"]
    measure = bench.floor("run", "crun", "--root", str(bench.scratch / "crun"), "run", "-b", str(bundle),
                          f"psbx-bench-{bench.scratch.name[-6:]}", wrap=wrap)
    measure.once()
    if measure.last[1] != "0":
        raise Skip(f"crun does not run here (exit code {measure.last[1]})")
    return measure


def run(bench):
    rounds = bench.rounds(100, 10)
    callers = {}
    for name, most in (("ready", None), ("cold", 0)):
        instance = bench.server(warm=most)
        callers[name] = Caller(instance, bench.floor("post", "127.0.0.1", instance.port))
    base = bench.scratch / "create"
    base.mkdir()
    sides = {"floor": bench.floor("create", base)}
    for name, make in (("crun", lambda: crun(bench)), ("docker", lambda: bench.floor(
            "run", "docker", "run", "--rm", docker_image(bench), "true"))):
        try:
            sides[name] = make()
        except Skip as reason:
            note(f"not against {name}: {reason}")

    def ours(caller):
        start, box = caller.call("sandbox_start", {"goal": "measure how soon a box is there"})
        first, _ = caller.call("sandbox_exec", {"id": box["id"], "cmd": "true", "note": "the first command"})
        for _ in range(2):
            caller.client.stop(box["id"])
        return start, first

    for _ in range(3):  # caches warm, for all alike
        for caller in callers.values():
            ours(caller)
        for side in sides.values():
            side.once()
    starts = {name: [] for name in callers}
    totals = {name: [] for name in callers}
    others = {name: [] for name in sides}
    for number in range(rounds):
        for name, caller in callers.items():
            if name == "ready":
                until(lambda: warm(caller.client) > 0)
            start, first = ours(caller)
            starts[name].append(start)
            totals[name].append(start + first)
        for name, side in sides.items():
            if name != "docker" or number < 15:
                others[name].append(side.once())
    for name in callers:
        note(f"{name}: start {median(starts[name]) / 1000:.2f} ms, with the first exec {median(totals[name]) / 1000:.2f} ms, "
             f"p95 {p95(totals[name]) / 1000:.2f} ms, {rounds} rounds")
    for name, figure in (("ready", "start → first exec"), ("cold", "the same from nothing")):
        mine = median(totals[name]) / 1000
        floor = median(others["floor"]) / 1000
        wanted = name == "ready"  # from nothing is told beside it: what the first start after a burst costs
        yield Row(figure, mine, "floor", floor, mine / floor, at_most=2 if wanted else None)
        for peer, least in (("crun", 3), ("docker", 20)):
            if peer in others:
                other = median(others[peer]) / 1000
                yield Row(figure, mine, f"{peer} run", other, other / mine, at_least=least if wanted else None)
    claim, cold = (median(starts[name]) / 1000 for name in ("ready", "cold"))
    yield Row("start alone, a box stands ready", claim, "from nothing", cold, claim / cold, at_most=0.25)


def warm(client):
    """Boxes that stand ready."""
    text = client.rest("GET", "/metrics")[2]
    return next(float(line.split()[1]) for line in text.decode().splitlines() if line.startswith("psbx_boxes_warm "))
