"""The official MCP conformance suite: the scenarios that an ordinary server can be asked, without fixtures of its own."""

import re
import subprocess
from pathlib import Path

import pytest
from instance import TOP

OLDER, NEWER = "2025-11-25", "2026-07-28"
SCENARIOS = [(OLDER, name) for name in ("server-initialize", "server-session-lifecycle", "ping", "tools-list",
                                        "dns-rebinding-protection", "server-sse-multiple-streams")]
SCENARIOS += [(NEWER, name) for name in ("tools-list", "http-header-validation", "dns-rebinding-protection",
                                         "server-sse-multiple-streams", "server-stateless", "caching",
                                         "sep-2164-resource-not-found")]
# Checks that want the suite's own tools, or capabilities that we do not have.
EXPECTED = Path(__file__).with_name("conformance-production.yml")
PARTIAL = ("server-stateless", "caching", "sep-2164-resource-not-found")


@pytest.fixture(scope="module")
def guarded(server, peers):
    """The server's address through a proxy that adds the key."""
    script = TOP / "test" / "e2e" / "drivers" / "authproxy.mjs"
    with subprocess.Popen([peers.node, str(script), server.url, server.key()], env=peers.env(), stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, text=True) as proxy:
        port = int(proxy.stdout.readline())
        yield f"http://127.0.0.1:{port}/mcp"
        proxy.terminate()


@pytest.mark.parametrize("version,scenario", SCENARIOS)
def test_scenario(peers, guarded, tmp_path, version, scenario):
    program = peers.modules("conformance") / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
    done = peers.run([program, "server", "--url", guarded, "--spec-version", version, "--scenario", scenario,
                      "-o", tmp_path, *(["--expected-failures", EXPECTED] if scenario in PARTIAL else [])], HOME=str(tmp_path))
    output = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout + done.stderr)
    assert done.returncode == 0, output[-6000:]
    if scenario in PARTIAL:
        return  # the exit code says that what is listed fails, and nothing else
    assert "FAILURE" not in output, output[-6000:]
    counted = re.search(r"Passed: (\d+)/(\d+)", output)
    assert counted and int(counted.group(1)) > 0 and counted.group(1) == counted.group(2), output[-6000:]
