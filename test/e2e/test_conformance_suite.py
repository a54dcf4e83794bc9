"""The official MCP conformance suite against our MCP server with the suite's fixtures as its tools
(parallelsandbox-conformance, a program that no release contains)."""

import os
import re
import subprocess
from pathlib import Path

import pytest
from instance import TOP, programs

OLDER, NEWER = "2025-11-25", "2026-07-28"
EXPECTED = Path(__file__).with_name("conformance-expected.yml")
# What the suite does not count as active, and we do.
MORE = [(OLDER, "json-schema-2020-12"), (OLDER, "server-sse-polling"), (NEWER, "json-schema-2020-12"),
        (NEWER, "server-stateless"), (NEWER, "http-header-validation"), (NEWER, "http-custom-header-server-validation"),
        (NEWER, "caching"), (NEWER, "sep-2164-resource-not-found"), (NEWER, "input-required-result-unsupported-methods")]
FIXTURE = b"test_image_content"


def built():
    """The program: beside the others, or in the sanitized build."""
    named = os.environ.get("PSBX_CONFORMANCE")
    for path in ([Path(named)] if named else []) + [programs() / "parallelsandbox-conformance",
                                                    TOP / "build" / "asan" / "bin" / "parallelsandbox-conformance"]:
        if path.exists():
            return path
    return None


@pytest.fixture(scope="module")
def address():
    program = built()
    if program is None:
        pytest.skip("parallelsandbox-conformance is not built: -Dconformance_fixtures=true does it")
    with subprocess.Popen([str(program)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as server:
        yield server.stdout.readline().strip()
        server.terminate()
        assert server.wait(30) == 0


def run(peers, tmp_path, *arguments):
    program = peers.modules("conformance") / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
    done = peers.run([program, "server", "--expected-failures", EXPECTED, "-o", tmp_path, *arguments], HOME=str(tmp_path))
    output = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout + done.stderr)
    assert done.returncode == 0, output[-6000:]
    return output


@pytest.mark.parametrize("version,least", [(OLDER, 15), (NEWER, 10)])
def test_active_suite(peers, address, tmp_path, version, least):
    output = run(peers, tmp_path, "--url", address, "--suite", "active", "--spec-version", version)
    passed = re.findall(r"^✓ ([a-z0-9-]+): (\d+) passed, 0 failed", output, re.MULTILINE)
    assert len(passed) >= least, output[-6000:]


@pytest.mark.parametrize("version,scenario", MORE)
def test_scenario(peers, address, tmp_path, version, scenario):
    output = run(peers, tmp_path, "--url", address, "--scenario", scenario, "--spec-version", version)
    counted = re.search(r"Passed: (\d+)/(\d+)", output)
    assert counted and int(counted.group(1)) > 0, output[-6000:]


def test_every_expected_failure_has_a_reason():
    reason, lines = False, EXPECTED.read_text().splitlines()
    for line in lines[lines.index("server:") + 1:]:
        if line.startswith("  #"):
            reason = True
        else:
            assert line.startswith("  - ") and reason, line


def test_no_release_program_has_fixtures():
    for name in ("parallelsandbox", "boxhost", "boxd", "parallelsandbox-mcp"):
        path = programs() / name
        if path.exists():
            assert FIXTURE not in path.read_bytes(), name
    program = built()
    if program is not None:
        assert FIXTURE in program.read_bytes()
