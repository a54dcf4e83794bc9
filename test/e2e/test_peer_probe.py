"""The project's wire probe, which knows nothing of our code: no line of it may say FAIL."""

import json

from instance import programs


def no_fail(done):
    failed = [line for line in done.stdout.splitlines() if line.startswith("FAIL")]
    assert not failed and done.returncode == 0, "\n".join(failed) + "\n" + done.stdout[-6000:] + done.stderr[-2000:]
    assert sum(line.startswith("PASS") for line in done.stdout.splitlines()) > 10, done.stdout
    return done.stdout


def test_over_http(server, client, box, peers, probes, tmp_path):
    slow = json.dumps({"id": box, "cmd": "sleep 4", "note": "the probe's slow call"})
    said = no_fail(peers.run([probes / "mcp_probe.mjs", server.url + "/mcp", "--token", server.key(), "--tool", "sandbox_list",
                              "--slow", "sandbox_exec", "--slow-args", slow], HOME=str(tmp_path)))
    assert "PASS resume.response-replayed-after-Last-Event-ID" in said, said


def test_localhost_by_name(server, peers, probes, tmp_path):
    url = server.url.replace("127.0.0.1", "localhost") + "/mcp"
    no_fail(peers.run([probes / "mcp_probe.mjs", url, "--token", server.key(), "--tool", "sandbox_list"], HOME=str(tmp_path)))


def test_our_adapter_over_stdio(server, client, box, peers, probes, tmp_path):
    slow = json.dumps({"id": box, "cmd": "sleep 4", "note": "the probe's slow call"})
    no_fail(peers.run([probes / "mcp_probe.mjs", "--stdio", "--slow", "sandbox_exec", "--slow-args", slow, "--",
                       programs() / "parallelsandbox-mcp"], HOME=str(tmp_path), **server.adapter_env()))
