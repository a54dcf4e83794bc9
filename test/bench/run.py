#!/usr/bin/env python3
"""`make bench`: every figure as a ratio against its floor and its peers, taken in one run, sides interleaved, medians.

    run.py [--only NAME[,NAME...]] [--quick] [--json FILE] [--strict]

Names: create exec scene adapter sync archive density waiting secrets screen. A target that is missed is said, not punished: the exit code is 0 when
everything was measured (--strict: and met). What cannot be measured here says why. Run it on a machine that is otherwise idle.
"""

import argparse
import importlib
import json
import os
import platform
import sys
import time
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from benchlib import Bench, Skip  # noqa: E402

NAMES = ("create", "exec", "scene", "adapter", "sync", "archive", "density", "waiting", "secrets", "screen")


def show(row):
    unit = f" {row.unit}" if row.unit else ""
    verdict = "met" if row.met else "MISSED"
    print(f"  {row.figure:34} {row.ours:10.3f}{unit:7} {row.against:18} {row.other:10.3f}{unit:7} "
          f"ratio {row.ratio:8.2f}  target {row.target:8} {verdict}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="")
    parser.add_argument("--quick", action="store_true", help="few rounds: to see that it works")
    parser.add_argument("--json", help="write all figures there")
    parser.add_argument("--strict", action="store_true", help="exit 1 when a target is missed")
    options = parser.parse_args()
    names = [name for name in options.only.split(",") if name] or list(NAMES)
    for name in names:
        if name not in NAMES:
            parser.error(f"no such measurement: {name}; there are {' '.join(NAMES)}")
    if os.geteuid() != 0:
        print("boxes are made by root, and this is not root: nothing to measure")
        return 1
    load = os.getloadavg()[0]
    print(f"Linux {platform.release()}, {os.cpu_count()} cores, load {load:.2f}")
    if load > 1:
        print("this machine is busy: ratios still say something, memory figures hardly")
    rows, broken = [], []
    for name in names:
        module = importlib.import_module(f"bench_{name}")
        print(f"\n{module.TITLE}", flush=True)
        started = time.monotonic()
        bench = Bench(options.quick)
        try:
            for row in module.run(bench):
                rows.append(row)
                show(row)
        except Skip as reason:
            print(f"  not measured: {reason}")
        except Exception:  # one broken measurement does not hide the others
            traceback.print_exc()
            broken.append(name)
        finally:
            try:
                for line in bench.close():
                    print(f"  left behind: {line}")
            except Exception:
                traceback.print_exc()
                broken.append(name)
        print(f"    {time.monotonic() - started:.0f} s", flush=True)
    if options.json:
        Path(options.json).write_text(json.dumps([row.as_dict() for row in rows], indent=2) + "\n")
    missed = [row for row in rows if not row.met]
    print(f"\n{len(rows)} figures, {len(rows) - len(missed)} met, {len(missed)} missed, {len(broken)} not measured")
    for row in missed:
        print(f"  missed: {row.figure} against {row.against}: {row.ratio:.2f}, wanted {row.target}")
    return 1 if broken or (options.strict and missed) else 0


if __name__ == "__main__":
    sys.exit(main())
