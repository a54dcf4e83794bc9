"""The official MCP conformance suite as a server, and our adapter as the client that it tests."""

import re
from pathlib import Path

import pytest
from instance import programs

OLDEST, OLDER, NEWER = "2025-03-26", "2025-11-25", "2026-07-28"
EXPECTED = Path(__file__).with_name("conformance-client-expected.yml")
DOCUMENT = "https://conformance-test.local/client-metadata.json"  # what the suite takes for a client's metadata document
SIGN_IN = [(OLDEST, "auth/2025-03-26-oauth-metadata-backcompat"), (OLDEST, "auth/2025-03-26-oauth-endpoint-fallback")]
SIGN_IN += [(NEWER, "auth/" + name) for name in (
    "resource-mismatch", "offline-access-scope", "offline-access-not-supported", "authorization-server-migration", "iss-supported",
    "iss-not-advertised", "iss-supported-missing", "iss-wrong-issuer", "iss-unexpected", "iss-normalized", "metadata-issuer-mismatch")]
CALLS = [(OLDER, "initialize"), (OLDER, "tools_call"), (OLDER, "sse-retry"), (NEWER, "tools_call"), (NEWER, "json-schema-ref-no-deref")]
MODERN_CALLS = ["tools_call", "request-metadata", "http-standard-headers"]


@pytest.fixture
def suite(peers, tmp_path):
    """Runs the suite with these arguments; returns exit code and output."""
    browser = tmp_path / "browser"
    browser.write_text('#!/bin/sh\nexec curl -sS -L -o /dev/null "$1"\n')
    browser.chmod(0o755)
    driver = peers.driver("sdk", "adapter-host.mjs", tmp_path)
    program = peers.modules("conformance") / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"

    def run(*arguments, **env):
        done = peers.run([program, "client", "--command", f"{peers.node} {driver}", "-o", tmp_path / "out", *arguments],
                         HOME=str(tmp_path), ADAPTER=str(programs() / "parallelsandbox-mcp"), BROWSER=str(browser),
                         PARALLELSANDBOX_OAUTH_CLIENT_ID=DOCUMENT, **env)
        return done.returncode, re.sub(r"\x1b\[[0-9;]*m", "", done.stdout + done.stderr)

    return run


@pytest.mark.parametrize("version", [OLDER, NEWER])
def test_every_way_to_sign_in(suite, version):
    code, output = suite("--suite", "auth", "--spec-version", version)
    passed = re.findall(r"^✓ auth/[a-z0-9-]+: (\d+) passed, 0 failed", output, re.MULTILINE)
    assert code == 0 and len(passed) >= 14 and "✗" not in output, output[-6000:]


@pytest.mark.parametrize("version,scenario", SIGN_IN + CALLS)
def test_scenario(suite, version, scenario):
    key = {} if scenario.startswith("auth/") else {"PARALLELSANDBOX_API_KEY": "psbx_any"}
    code, output = suite("--scenario", scenario, "--spec-version", version, LINGER="3000" if scenario == "sse-retry" else "0", **key)
    counted = re.search(r"Passed: (\d+)/(\d+)", output)
    assert code == 0 and counted and int(counted.group(1)) > 0 and counted.group(1) == counted.group(2), output[-6000:]


@pytest.mark.parametrize("scenario", MODERN_CALLS)
def test_scenario_with_the_newer_era_asked_for_first(suite, scenario):
    code, output = suite("--scenario", scenario, "--spec-version", NEWER, PARALLELSANDBOX_API_KEY="psbx_any", PSBX_ADAPTER_ERA="modern")
    counted = re.search(r"Passed: (\d+)/(\d+)", output)
    assert code == 0 and counted and int(counted.group(1)) > 0 and counted.group(1) == counted.group(2), output[-6000:]


def test_extensions_fail_as_expected(suite):
    code, output = suite("--suite", "extensions", "--timeout", "15000", "--expected-failures", EXPECTED, PSBX_ADAPTER_SIGN_IN_MS="3000")
    assert code == 0, output[-6000:]


def test_every_expected_failure_has_a_reason():
    reason, lines = False, EXPECTED.read_text().splitlines()
    for line in lines[lines.index("client:") + 1:]:
        if line.startswith("  #"):
            reason = True
        else:
            assert line.startswith("  - ") and reason, line
