"""The TypeScript SDK's clients, v1 and v2, use our server over HTTP and our adapter over stdio."""

import json

import pytest
from instance import programs


def drive(peers, tmp_path, script, arguments, **env):
    path = peers.driver("sdk", script, tmp_path)
    done = peers.run([path, *arguments], HOME=str(tmp_path), **env)
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return json.loads(done.stdout.strip().splitlines()[-1])


def check(seen):
    assert seen["server"]["name"] and seen["server"]["version"]
    assert 0 < seen["instructions"] < 2048
    assert {"sandbox_start", "sandbox_exec", "sandbox_sync", "sandbox_pull"} <= set(seen["tools"])
    assert seen["listed"] is True
    assert seen["exec"]["exitCode"] == 3 and seen["exec"]["stdout"] == "out\n" and seen["exec"]["stderr"] == "err\n"
    assert seen["slow"]["stdout"] == "slept\n"
    assert seen["progress"] == sorted(set(seen["progress"])), "progress goes up"
    assert "background" in seen["waited"]["stdout"] and seen["waited"]["exitCode"] == 0
    assert seen["status"]["id"] == seen["box"]
    assert seen["body"] == "content\n"
    assert seen["cancelled"].startswith("cancelled")
    assert seen["afterCancel"] == "still here\n"
    assert "note" in seen["missing"]


@pytest.mark.parametrize("script,env", [("sdk1.mjs", {}), ("sdk2.mjs", {"ERA": "legacy"}), ("sdk2.mjs", {"ERA": "auto"})],
                         ids=["v1", "v2", "v2-auto"])
def test_over_http(server, peers, tmp_path, script, env):
    seen = drive(peers, tmp_path, script, [server.url + "/mcp", server.key()], **env)
    check(seen)
    if env.get("ERA") == "auto":
        assert "2026-07-28" in str(seen["ping"]), "there is no ping in the newer revision, and that is what was negotiated"
    else:
        assert seen.get("ping", True) is True


@pytest.mark.parametrize("script,env", [("sdk1.mjs", {}), ("sdk2.mjs", {"ERA": "legacy"}), ("sdk2.mjs", {"ERA": "auto"})],
                         ids=["v1", "v2", "v2-auto"])
def test_over_our_adapter(server, peers, tmp_path, script, env):
    seen = drive(peers, tmp_path, script, ["--", programs() / "parallelsandbox-mcp"], **server.adapter_env(), **env)
    check(seen)


def test_a_wrong_key_is_refused(server, peers, tmp_path):
    path = peers.driver("sdk", "sdk1.mjs", tmp_path)
    done = peers.run([path, server.url + "/mcp", "psbx_not-a-key"], HOME=str(tmp_path))
    assert done.returncode != 0
    assert "401" in done.stderr or "Unauthorized" in done.stderr
