"""Clients that others wrote sign in to our server, with a stand-in for the person and the browser."""

import json
import os
import pty
import re
import subprocess
import threading

import pytest
from instance import until
from oauthclient import PASSWORD, people

LOGIN = {"LOGIN": "ada", "PASSWORD": PASSWORD}


@pytest.fixture(scope="module")
def person(server):
    return people(server)


# --- the probe ---

def test_probe(server, person, peers, probes, tmp_path):
    """Every check but one: a refresh token repeated at once gives the same successor here, and ends the family after 60 s only
    (test_oauth_flow.py::test_rotation_and_its_grace)."""
    for name in ("127.0.0.1", "localhost"):
        url = f"http://{name}:{server.port}/mcp"
        done = peers.run([probes / "oauth_probe.mjs", url, "--form", "login=ada", "--form", "password=" + PASSWORD], HOME=str(tmp_path))
        lines = done.stdout.splitlines()
        told = [line.split(" :: ")[0].split(None, 1)[1].split()[0] for line in lines if line.startswith(("FAIL", "WARN"))]
        assert sorted(told) == ["refresh.reuse-invalid_grant", "refresh.reuse-kills-access-token", "refresh.reuse-revokes-family"], done.stdout
        assert sum(line.startswith("PASS") for line in lines) > 70, done.stdout


# --- SDK ---

@pytest.mark.parametrize("script,env", [("oauth-sdk1.mjs", {}), ("oauth-sdk2.mjs", {"ERA": "legacy"}), ("oauth-sdk2.mjs", {"ERA": "auto"})],
                         ids=["v1", "v2", "v2-auto"])
def test_sdk_signs_in_refreshes_and_survives_a_restart(server, person, peers, tmp_path, script, env):
    path = peers.driver("sdk", script, tmp_path)
    with subprocess.Popen([peers.node, path, server.url + "/mcp"], env=peers.env(HOME=str(tmp_path), **LOGIN, **env), stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as client:
        killer = threading.Timer(120, client.kill)
        killer.start()
        try:
            line = client.stdout.readline()
            if line.strip() == "restart":
                server.stop()
                server.start()
                client.stdin.write("go\n")
                client.stdin.flush()
            out, err = client.communicate()
        finally:
            killer.cancel()
    assert client.returncode == 0, f"{line}{out}\n{err}"
    seen = json.loads(out.strip().splitlines()[-1])
    assert seen["tools"] >= 7 and seen["first"] is True and seen["refreshed"] is True, seen
    assert seen["afterRestart"] is True and seen["reconnected"] is True and seen["refreshedAgain"] is True, seen
    assert seen["registrations"] == 1 and seen["saved"] == 3, seen


@pytest.mark.parametrize("script", ["sdk_oauth-v1.mjs", "sdk_oauth-v2.mjs"])
def test_probe_with_the_sdk(server, person, peers, probes, tmp_path, script):
    peers.driver("sdk", "sdk1.mjs", tmp_path)
    place = tmp_path / "driver-sdk" / script
    place.write_bytes((probes / script).read_bytes())
    done = peers.run([place, server.url + "/mcp"], HOME=str(tmp_path), FORM="login=ada&password=" + PASSWORD.replace(" ", "%20"), TOOL="sandbox_list", ARGS="{}")
    assert done.returncode == 0 and "after bogus token" in done.stdout and '"boxes"' in done.stdout, done.stdout + done.stderr


# --- conformance ---

def test_conformance_of_the_authorization_server(server, person, peers, tmp_path):
    program = peers.modules("conformance") / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
    port = 3977
    import http.client
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    connection.request("POST", "/register", json.dumps({"client_name": "conformance", "redirect_uris": [f"http://127.0.0.1:{port}/callback"],
                                                        "token_endpoint_auth_method": "none"}), {"Content-Type": "application/json"})
    client_id = json.loads(connection.getresponse().read())["client_id"]
    connection.close()
    with subprocess.Popen([peers.node, program, "authorization", "--url", server.url, "--client-id", client_id, "--resource", server.url + "/mcp",
                           "--port", str(port)], env=peers.env(HOME=str(tmp_path)), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, cwd=tmp_path) as tester:
        output, opened = answer_urls(tester, server, peers, tmp_path)
    assert opened and tester.returncode == 0 and "FAILURE" not in output, output[-6000:]


def answer_urls(process, server, peers, tmp_path, limit=120):
    """Reads a program's output and answers the authorization URL in it; the output, and how often that was done."""
    script = peers.driver("sdk", "oauth-open.mjs", tmp_path)
    killer = threading.Timer(limit, process.kill)
    killer.start()
    output, opened = "", 0
    try:
        for line in process.stdout:
            line = re.sub(r"\x1b\[[0-9;]*m", "", line)
            output += line
            found = re.search(re.escape(server.url) + r"/authorize\?[^\s\"']+", line)
            if found and not opened:
                opened += 1
                done = peers.run([script, found.group(0)], HOME=str(tmp_path), **LOGIN)
                output += done.stdout + done.stderr
        process.wait()
    finally:
        killer.cancel()
    return output, opened


# --- the Inspector, which wants a terminal ---

def test_inspector_signs_in(server, person, peers, tmp_path):
    program = peers.modules("inspector") / ".bin" / "mcp-inspector"
    script = peers.driver("sdk", "oauth-open.mjs", tmp_path)
    pid, terminal = pty.fork()
    if pid == 0:
        env = peers.env(HOME=str(tmp_path), TERM="dumb", BROWSER="true", PATH_EXTRA="")
        os.execve(peers.node, [peers.node, str(program), "--cli", server.url + "/mcp", "--method", "tools/list", "--format", "json"], env)
    killer = threading.Timer(120, os.kill, (pid, 9))
    killer.start()
    output, opened = "", False
    try:
        while True:
            try:
                data = os.read(terminal, 65536)
            except OSError:
                break
            if not data:
                break
            output += data.decode("utf-8", "replace")
            found = re.search(re.escape(server.url) + r"/authorize\?[^\s\"'\x00-\x1f]+(?=[\s\"'\x00-\x1f])", re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", output))
            if found and not opened:
                opened = True
                done = peers.run([script, found.group(0)], HOME=str(tmp_path), **LOGIN)
                output += f"\n[{done.stdout} {done.stderr}]\n"
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    finally:
        killer.cancel()
        os.close(terminal)
    assert opened and status == 0 and "sandbox_start" in output, output[-3000:]


# --- mcp-remote ---

def test_mcp_remote_signs_in(server, person, peers, tmp_path):
    program = peers.modules("mcp-remote") / "mcp-remote" / "dist" / "proxy.js"
    log = tmp_path / "log"
    with open(log, "wb") as errors, subprocess.Popen([peers.node, program, server.url + "/mcp", "--allow-http"],
                                                     env=peers.env(HOME=str(tmp_path), BROWSER="true"), stdin=subprocess.PIPE,
                                                     stdout=subprocess.PIPE, stderr=errors, text=True) as proxy:
        killer = threading.Timer(120, proxy.kill)
        killer.start()
        try:
            def send(message):
                proxy.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
                proxy.stdin.flush()

            url = re.escape(server.url) + r"/authorize\?\S+"
            found = until(lambda: re.search(url, log.read_text()), 60)
            script = peers.driver("sdk", "oauth-open.mjs", tmp_path)
            done = peers.run([script, found.group(0)], HOME=str(tmp_path), **LOGIN)
            assert done.returncode == 0, done.stderr
            send({"id": 1, "method": "initialize", "params": {"protocolVersion": "2025-11-25", "capabilities": {},
                                                               "clientInfo": {"name": "test", "version": "1"}}})
            assert json.loads(proxy.stdout.readline())["result"]["serverInfo"]["name"] == "parallelsandbox"
            send({"method": "notifications/initialized"})
            send({"id": 2, "method": "tools/list"})
            answer = json.loads(proxy.stdout.readline())
            assert "sandbox_start" in [tool["name"] for tool in answer["result"]["tools"]]
        except BaseException:
            print(log.read_text()[-3000:])
            raise
        finally:
            killer.cancel()
            proxy.kill()
