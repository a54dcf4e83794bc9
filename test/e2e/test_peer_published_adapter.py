"""The adapter of the hosted product, as published on npm, works against our server unchanged."""

import json
import os
import stat

import pytest
from mcpclient import StdioMcp


@pytest.fixture
def published(server, peers, tmp_path):
    script = peers.modules("adapter") / "parallelsandbox-mcp" / "index.mjs"
    with StdioMcp([peers.node, str(script)], env=peers.env(**server.adapter_env(), HOME=str(tmp_path))) as adapter:
        adapter.initialize(name="published-host", version="7")
        yield adapter


def call(adapter, name, **arguments):
    result = adapter.tool(name, arguments)
    assert not result.is_error, result.text
    return result.data


def test_lists_the_servers_tools(published):
    tools = published.tools()
    for name in ("sandbox_start", "sandbox_list", "sandbox_status", "sandbox_exec", "sandbox_procs", "sandbox_get",
                 "sandbox_stop", "sandbox_sync", "sandbox_pull"):
        assert name in tools
        assert tools[name]["description"]


def test_a_whole_session(published, client, repository, tmp_path):
    box = call(published, "sandbox_start", goal="the published adapter's session")["id"]
    has_node = published.tool("sandbox_exec", {"id": box, "cmd": "command -v node", "note": "look for node"})
    if has_node.data["exitCode"] != 0:
        pytest.skip("its comparison needs node in the box, and this machine's /usr has none to show there")

    first = call(published, "sandbox_sync", id=box, localPath=str(repository), dest="repo")
    assert first["ok"] and first["files"] == 7 and first["sentFiles"] == 7

    run = call(published, "sandbox_exec", id=box, cmd="./link && cat 'src/with space' src/données.txt && ls",
               cwd="repo", note="run what was synced")
    assert run["exitCode"] == 0
    assert "hello from the repository" in run["stdout"] and "accents in the name" in run["stdout"]
    assert "ignored.o" not in run["stdout"] and "new.txt" in run["stdout"]

    again = call(published, "sandbox_sync", id=box, localPath=str(repository), dest="repo")
    assert again["sentFiles"] == 0 and again["uploadedBytes"] == 0

    (repository / "README").write_text("edited here\n")
    edited = call(published, "sandbox_sync", id=box, localPath=str(repository), dest="repo")
    assert edited["sentFiles"] == 1

    call(published, "sandbox_exec", id=box, cmd="echo edited in the box > README; mkdir -p out; seq 1000 > out/list",
         cwd="repo", note="change a file in the box")
    back = call(published, "sandbox_sync", id=box, localPath=str(repository), dest="repo")
    assert back["sentFiles"] == 1
    assert call(published, "sandbox_exec", id=box, cmd="cat README", cwd="repo", note="read it")["stdout"] == "edited here\n"

    got = call(published, "sandbox_get", id=box, path="repo/out/list")
    status, _, body = client.fetch(got["url"])
    assert status == 200 and body == b"".join(b"%d\n" % n for n in range(1, 1001)) and got["bytes"] == len(body)

    pulled = call(published, "sandbox_pull", id=box, path="repo/src", localPath=str(tmp_path / "pulled"))
    assert pulled["ok"]
    found = sorted(path.name for path in (tmp_path / "pulled").rglob("*") if path.is_file())
    assert found == ["données.txt", "hello.sh", "with space"]
    script = next((tmp_path / "pulled").rglob("hello.sh"))
    assert script.read_bytes() == (repository / "src" / "hello.sh").read_bytes()
    assert os.stat(script).st_mode & stat.S_IXUSR

    single = call(published, "sandbox_pull", id=box, path="repo/README", localPath=str(tmp_path / "one"))
    assert single["ok"] and (tmp_path / "one").read_text() == "edited here\n"

    listed = call(published, "sandbox_list")["boxes"]
    mine = next(row for row in listed if row["id"] == box)
    assert mine["goal"] == "the published adapter's session"
    assert "published-host" in json.dumps(mine["agent"])

    stopped = call(published, "sandbox_stop", id=box)
    assert stopped is not None
    assert box not in [row["id"] for row in call(published, "sandbox_list")["boxes"]]


def test_errors_come_through(published):
    result = published.tool("sandbox_exec", {"id": "nosuchbox", "cmd": "true", "note": "a box that is not there"})
    assert result.is_error and "nosuchbox" in result.text
    result = published.tool("sandbox_start", {})
    assert result.is_error and "goal" in result.text


def test_stdout_stays_clean(published):
    published.tools()
    published.process.terminate()  # this release does not end by itself when its stdin closes
    published.process.wait(20)
    assert not published.stray
