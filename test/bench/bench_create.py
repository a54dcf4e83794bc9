"""A box from nothing: sandbox_start and the first sandbox_exec answered, through MCP.

Against the floor (the system calls without which there is no such box), `crun run` of the same `true`, and `docker run`."""

import json
import subprocess
from pathlib import Path

from benchlib import Caller, Row, Skip, docker_image, median, note, p95

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
    instance = bench.server()
    caller = Caller(instance, bench.floor("post", "127.0.0.1", instance.port))
    base = bench.scratch / "create"
    base.mkdir()
    sides = {"floor": bench.floor("create", base)}
    for name, make in (("crun", lambda: crun(bench)), ("docker", lambda: bench.floor(
            "run", "docker", "run", "--rm", docker_image(bench), "true"))):
        try:
            sides[name] = make()
        except Skip as reason:
            note(f"not against {name}: {reason}")

    def ours():
        start, box = caller.call("sandbox_start", {"goal": "measure how soon a box is there"})
        first, _ = caller.call("sandbox_exec", {"id": box["id"], "cmd": "true", "note": "the first command"})
        for _ in range(2):
            caller.client.stop(box["id"])
        return start, first

    for _ in range(3):  # caches warm, for all alike
        ours()
        for side in sides.values():
            side.once()
    starts, firsts, others = [], [], {name: [] for name in sides}
    for number in range(rounds):
        start, first = ours()
        starts.append(start)
        firsts.append(first)
        for name, side in sides.items():
            if name != "docker" or number < 15:
                others[name].append(side.once())
    totals = [a + b for a, b in zip(starts, firsts)]
    mine = median(totals) / 1000
    note(f"start {median(starts) / 1000:.2f} ms, first exec {median(firsts) / 1000:.2f} ms, both p95 {p95(totals) / 1000:.2f} ms, "
         f"{rounds} rounds")
    yield Row("create → first exec", mine, "floor", median(others["floor"]) / 1000, mine * 1000 / median(others["floor"]), at_most=2)
    if "crun" in others:
        other = median(others["crun"]) / 1000
        yield Row("create → first exec", mine, "crun run", other, other / mine, at_least=3)
    if "docker" in others:
        other = median(others["docker"]) / 1000
        yield Row("create → first exec", mine, "docker run", other, other / mine, at_least=20)
