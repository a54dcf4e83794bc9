"""The stdio adapter against the published one: time to its first answer, memory, and what a proxied call costs more than a direct one."""

import json

from benchlib import Caller, Row, median, note

TITLE = "the stdio adapter"


def run(bench):
    instance = bench.server()
    env = instance.adapter_env(HOME=str(bench.scratch), PSBX_FEEDBACK_DIR=str(bench.scratch / "feedback"))
    sides = {"ours": bench.adapter(), "npm": bench.npm_adapter()}

    times, memory = {name: [] for name in sides}, {name: [] for name in sides}
    starters = {name: bench.floor("start", *argv, env=env) for name, argv in sides.items()}
    for number in range(bench.rounds(15, 4) + 1):
        for name, starter in starters.items():
            took = starter.once()
            if number:
                times[name].append(took / 1000)
                memory[name].append(int(starter.last[1]) / 1024)
    ours, npm = median(times["ours"]), median(times["npm"])
    yield Row("adapter: initialize answered", ours, "npm adapter", npm, npm / ours, at_least=50)
    ours, npm = median(memory["ours"]), median(memory["npm"])
    yield Row("adapter: resident memory", ours, "npm adapter", npm, npm / ours, unit="MiB", at_least=15)

    caller = Caller(instance, bench.floor("post", "127.0.0.1", instance.port))
    calls = {name: bench.floor("call", *argv, env=env) for name, argv in sides.items()}
    number, took = 200000, {"direct": [], "ours": [], "npm": []}
    for turn in range(bench.rounds(300, 40) + 20):
        now = {"direct": caller.call("sandbox_list", {})[0]}
        for name, measure in calls.items():
            number += 1
            line = json.dumps({"jsonrpc": "2.0", "id": number, "method": "tools/call",
                               "params": {"name": "sandbox_list", "arguments": {}}}, separators=(",", ":"))
            now[name] = measure.once(line + "\n")
        if turn >= 20:
            for name, value in now.items():
                took[name].append(value)
    direct = median(took["direct"])
    added = {name: max(median(took[name]) - direct, 1.0) / 1000 for name in sides}
    note(f"a direct sandbox_list takes {direct / 1000:.3f} ms, through ours {median(took['ours']) / 1000:.3f} ms, "
         f"through npm's {median(took['npm']) / 1000:.3f} ms")
    yield Row("adapter: added to a call", added["ours"], "npm adapter", added["npm"], added["npm"] / added["ours"], at_least=10)
