#!/usr/bin/env python3
"""Runs every test of the project and closes with one line: N passed, N failed, N skipped.

    run-tests.py [--jobs N] [--only STEP[,STEP...]] [-k WORD] [--verbose]

Steps, in this order:
    build   the release build and the sanitized one (address and undefined behaviour)
    unit    meson's tests of the sanitized build: unit tests, HTTP wire scripts, fuzz corpora replayed, torture
    check   clang-format, clang-tidy, cppcheck and the house rules in test/check
    box     pytest over test/box, against the release build (real boxes: as root)
    e2e     pytest over test/e2e, against the release build (real peers); two files at a time, each by a pytest of its own

Nothing here judges by time: a limit only ends what hangs. Each skip is listed with its reason.
"""

import argparse
import concurrent.futures
import json
import os
import re
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
BUILD = TOP / "build"
ASAN = BUILD / "asan"
PYTHON = "/usr/bin/python3"
STEPS = ("build", "unit", "check", "box", "e2e")
# What hangs is ended after this long, in seconds; generous, since two cores may be shared.
LIMIT = {"build": 1500, "unit": 1200, "check": 1500, "box": 1500, "e2e": 2400}

SANITIZER_ENV = {
    "ASAN_OPTIONS": "halt_on_error=1:abort_on_error=1:detect_leaks=1:strict_string_checks=1:"
                    "detect_stack_use_after_return=1:allocator_may_return_null=1",
    "UBSAN_OPTIONS": "halt_on_error=1:abort_on_error=1:print_stacktrace=1",
}


class Tally:
    """What was run so far."""

    def __init__(self) -> None:
        self.passed = 0
        self.failed: list[tuple[str, str]] = []
        self.skipped: list[tuple[str, str]] = []

    def ok(self, count: int = 1) -> None:
        self.passed += count

    def fail(self, name: str, output: str = "") -> None:
        self.failed.append((name, output))
        print(f"FAILED  {name}", flush=True)
        if output.strip():
            print(indent(shorten(output)), flush=True)

    def skip(self, name: str, reason: str) -> None:
        self.skipped.append((name, reason))


def indent(text: str) -> str:
    return "\n".join("    " + line for line in text.rstrip().splitlines())


def shorten(text: str, limit: int = 12000) -> str:
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n[... {len(text) - limit} characters left out ...]\n{text[-half:]}"


def run(command: list[str], limit: int, env: dict[str, str] | None = None, show: bool = False) -> tuple[int, str]:
    """One command in a process group of its own, ended as a whole at its limit. Returns exit code and output."""
    full_env = dict(os.environ, **(env or {}))
    child = subprocess.Popen(command, cwd=TOP, env=full_env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, start_new_session=True)
    deadline = time.monotonic() + limit
    output = bytearray()
    os.set_blocking(child.stdout.fileno(), False)
    timed_out = False
    while True:
        chunk = child.stdout.read()
        if chunk:
            output += chunk
            if show:
                sys.stdout.write(chunk.decode(errors="replace"))
                sys.stdout.flush()
        elif child.poll() is not None:
            break  # a background grandchild may keep the pipe open: the command itself has ended
        else:
            time.sleep(0.05)
        if not timed_out and time.monotonic() > deadline:
            timed_out = True
            output += f"\n[ended after {limit} s]\n".encode()
            os.killpg(child.pid, signal.SIGTERM)
            time.sleep(3)
            try:
                os.killpg(child.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
    return (124 if timed_out else child.returncode), output.decode(errors="replace")


def step_build(tally: Tally, options: argparse.Namespace) -> bool:
    print("== build", flush=True)
    code, output = run(["make", "all", f"JOBS={options.jobs}"], LIMIT["build"])
    if code != 0:
        tally.fail("build", output)
        return False
    tally.ok()
    # With the fixtures of the conformance suite, which no release has.
    # The release build has already refused every warning; in instrumented code gcc sees null arguments where none are.
    setup = ["-Db_sanitize=address,undefined", "-Dconformance_fixtures=true", "-Dwerror_all=false"]
    if not (ASAN / "build.ninja").exists():
        code, output = run(["meson", "setup", str(ASAN), *setup], 300)
    elif not (ASAN / "test" / "conformance").is_dir():
        code, output = run(["meson", "setup", "--reconfigure", str(ASAN), *setup], 300)
    if code != 0:
        tally.fail("build with sanitizers: setup", output)
        return False
    code, output = run(["ninja", "-C", str(ASAN), "-j", str(options.jobs), "--quiet"], LIMIT["build"])
    if code == 0:
        code, output = run([PYTHON, "scripts/link-outputs.py", str(ASAN)], 60)
    if code != 0:
        tally.fail("build with sanitizers", output)
        return False
    tally.ok()
    return True


# cmocka's own report; a program that prints none counts as one test.
CMOCKA_LINE = re.compile(r"^\[\s+(OK|FAILED|SKIPPED)\s+\] (\S+)$", re.MULTILINE)


def step_unit(tally: Tally, options: argparse.Namespace) -> None:
    print("== unit tests, under sanitizers", flush=True)
    if not (ASAN / "build.ninja").exists():
        tally.fail("unit tests", "the sanitized build is missing")
        return
    log = ASAN / "meson-logs" / "testlog.json"
    log.unlink(missing_ok=True)
    command = ["meson", "test", "-C", str(ASAN), "--no-rebuild", "--num-processes", str(options.jobs)]
    code, output = run(command, LIMIT["unit"], SANITIZER_ENV)
    if not log.exists():
        if "No tests defined" in output:
            tally.fail("unit tests", "none is defined")
        else:
            tally.fail("unit tests", output)
        return
    for line in log.read_text().splitlines():
        record = json.loads(line)
        name = record["name"].split(" / ")[-1]
        if options.k and options.k not in name:
            continue
        text = "\n".join(part for part in (record.get("stdout"), record.get("stderr")) if part)
        cases = dict((case, state) for state, case in CMOCKA_LINE.findall(text))
        good = record["result"] in ("OK", "EXPECTEDFAIL")
        if record["result"] == "SKIP":
            tally.skip(f"unit: {name}", text.strip().splitlines()[-1] if text.strip() else "the program said 77")
            continue
        for case, state in cases.items():
            if state == "OK":
                tally.ok()
            elif state == "SKIPPED":
                reason = re.search(rf"skip(?:ped)? {re.escape(case)}: (.*)", text)
                tally.skip(f"unit: {name}: {case}", reason.group(1) if reason else "skipped by the test itself")
        if not good:
            bad = [case for case, state in cases.items() if state == "FAILED"]
            for case in bad[1:]:
                tally.failed.append((f"unit: {name}: {case}", ""))
            tally.fail(f"unit: {name}" + (f": {bad[0]}" if bad else f" ({record['result']})"), text)
        elif not cases:
            tally.ok()
        if options.verbose:
            print(f"   {record['result']:8} {name} ({len(cases) or 1})", flush=True)
    if code == 124:
        tally.fail("unit tests", output[-2000:])


def checks() -> list[tuple[str, list[str]]]:
    found = [(script.stem, ["bash", str(script)]) for script in sorted((TOP / "test" / "check").glob("*.sh"))]
    found += [(script.stem, [PYTHON, str(script)]) for script in sorted((TOP / "test" / "check").glob("*.py"))
              if not script.name.startswith("_")]
    return found


def step_check(tally: Tally, options: argparse.Namespace) -> None:
    print("== static checks", flush=True)
    for name, command in checks():
        if options.k and options.k not in name:
            continue
        code, output = run(command, LIMIT["check"], {"JOBS": str(options.jobs)})
        if code == 77:
            tally.skip(f"check: {name}", output.strip().splitlines()[-1] if output.strip() else "no reason given")
        elif code != 0:
            tally.fail(f"check: {name}", output)
        else:
            tally.ok()
            if options.verbose:
                print(f"   OK       {name}", flush=True)


# Files that take minutes begin first, so that none of them is alone at the end.
LONG = ("test_image", "test_life_kills", "test_life_cycle", "test_restart", "test_scenes_browser", "test_screen_chromium", "test_secrets")
# Files of test/e2e that run at the same time. Servers never touch each other's boxes; most of a test is waiting.
LANES = 2


def start_order(path: Path) -> tuple[int, str]:
    return (LONG.index(path.stem) if path.stem in LONG else len(LONG), path.name)


def run_pytest(what: Path, options: argparse.Namespace, suite: str, programs: Path) -> tuple[Path, int, str, Path]:
    report = BUILD / f"pytest-{suite}-{what.stem}.xml"
    report.unlink(missing_ok=True)
    command = [PYTHON, "-m", "pytest", str(what), "-q", "--tb=short", "-p", "no:cacheprovider",
               "-o", "faulthandler_timeout=300", f"--junitxml={report}"]
    if options.k:
        command += ["-k", options.k]
    env = dict(SANITIZER_ENV, PSBX_BIN=str(programs), PYTHONDONTWRITEBYTECODE="1")
    return what, *run(command, LIMIT[suite], env, show=options.verbose), report


def step_pytest(tally: Tally, options: argparse.Namespace, suite: str, programs: Path) -> None:
    folder = TOP / "test" / suite
    files = sorted(folder.glob("test_*.py"), key=start_order)
    if not files:
        return
    print(f"== {suite} tests, with {programs.relative_to(TOP)}", flush=True)
    lanes = min(LANES, options.jobs) if suite == "e2e" else 1
    # Those of test/box look at the whole machine: one after the other, with what a session shares.
    with concurrent.futures.ThreadPoolExecutor(lanes) as pool:
        runs = [pool.submit(run_pytest, what, options, suite, programs) for what in (files if lanes > 1 else [folder])]
        for done in concurrent.futures.as_completed(runs):
            count_pytest(tally, suite, *done.result())


def count_pytest(tally: Tally, suite: str, what: Path, code: int, output: str, report: Path) -> None:
    if not report.exists():
        if code != 5:  # 5: nothing was selected
            tally.fail(f"{suite}: {what.stem} (pytest ended with {code})", output[-8000:])
        return
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        name = f"{suite}: {case.get('classname', '').split('.')[-1]}::{case.get('name')}"
        problem = case.find("failure")
        if problem is None:
            problem = case.find("error")
        skip = case.find("skipped")
        if problem is not None:
            streams = "\n".join(part.text or "" for tag in ("system-out", "system-err") for part in case.findall(tag))
            tally.fail(name, (problem.text or problem.get("message") or "") + "\n" + streams[-4000:])
        elif skip is not None:
            tally.skip(name, skip.get("message") or "no reason given")
        else:
            tally.ok()
    if code not in (0, 1, 5):
        tally.fail(f"{suite}: {what.stem} (pytest ended with {code})", output[-4000:])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 2)
    parser.add_argument("--only", default="", help="steps, with commas between them")
    parser.add_argument("-k", default="", help="only tests whose name holds this word")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    only = [step for step in options.only.split(",") if step]
    unknown = [step for step in only if step not in STEPS]
    if unknown:
        parser.error(f"no such step: {' '.join(unknown)}; there are: {' '.join(STEPS)}")
    wanted = only or list(STEPS)

    tally = Tally()
    started = time.monotonic()
    built = True
    if "build" in wanted or any(step in wanted for step in ("unit", "box", "e2e")):
        built = step_build(tally, options)
    elif "check" in wanted:
        run(["make", "all", f"JOBS={options.jobs}"], LIMIT["build"])  # for the compile commands and generated headers
    if built and "unit" in wanted:
        step_unit(tally, options)
    if "check" in wanted:
        step_check(tally, options)
    if built:
        for suite in ("box", "e2e"):
            if suite in wanted:
                step_pytest(tally, options, suite, BUILD / "bin")
    if tally.skipped:
        print("\nskipped, and why:")
        for name, reason in tally.skipped:
            print(f"  {name}: {reason}")
    if tally.failed:
        print("\nfailed:")
        for name, _ in tally.failed:
            print(f"  {name}")
    print(f"\nthis took {time.monotonic() - started:.0f} s")
    print(f"{tally.passed} passed, {len(tally.failed)} failed, {len(tally.skipped)} skipped", flush=True)
    return 1 if tally.failed or not tally.passed else 0


if __name__ == "__main__":
    sys.exit(main())
