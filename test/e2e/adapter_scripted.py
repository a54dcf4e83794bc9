"""What the tests of the adapter against the scripted server share."""

import json
import os
import subprocess
import time

import pytest

from instance import TOP, programs  # noqa: F401
from mcpclient import StdioMcp
from scripted_server import ScriptedServer

NO_SERVER = {"PARALLELSANDBOX_MCP_URL": "http://127.0.0.1:1/mcp", "PARALLELSANDBOX_API_KEY": "psbx_x"}
META = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}


def binary():
    return str(programs() / "parallelsandbox-mcp")


@pytest.fixture
def script(tmp_path):
    work = tmp_path / "work"
    work.mkdir()
    with ScriptedServer(work) as server:
        yield server


@pytest.fixture
def adapter(script, tmp_path):
    made = []

    def make(cwd=None, **env):
        one = StdioMcp([binary()], env=script.env(XDG_CACHE_HOME=str(tmp_path / "cache"), HOME=str(tmp_path), **env), cwd=cwd)
        made.append(one)
        one.initialize("probe", "7.1")
        return one

    yield make
    for one in made:
        one.kill()
        assert not one.stray, one.stray


def raw(env, data, wait=0.3):
    """Writes bytes to a fresh adapter and returns what it printed, exit code and stderr."""
    process = subprocess.Popen([binary()], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               env={"PATH": os.environ["PATH"], **env})
    for piece in data if isinstance(data, list) else [data]:
        process.stdin.write(piece)
        process.stdin.flush()
        time.sleep(0.05)
    out, err = process.communicate(timeout=10)
    return [json.loads(line) for line in out.splitlines()], process.returncode, err.decode()


def line(**message):
    return json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"
