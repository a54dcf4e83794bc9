"""sandbox_sync with servers that cannot compare, what its result says beside the files, and what follows a failure."""

import subprocess

import pytest

from adapter_scripted import adapter, script  # noqa: F401
from scripted_server import text_result
from test_adapter_sync import repo, selection, sync, tree  # noqa: F401


# --- servers from before the comparison -------------------------------------------------------------------
@pytest.mark.parametrize("status, body", [(404, b"<html>Cannot POST</html>"), (404, b'{"error": "Not found"}'), (405, b""), (501, b"")])
def test_a_server_that_cannot_compare_gets_everything(script, adapter, repo, status, body):
    def no_such_route(handler, _query):
        b"".join(handler.body_pieces())
        handler.answer(status, "text/html", body)
        return True

    script.on_box["plan"] = no_such_route
    one = adapter()
    for _ in range(2):
        result = sync(one, repo)
        assert result.data["ok"] and result.data["sentFiles"] == result.data["files"]
        assert any("cannot compare" in note for note in result.data["notes"])
        assert "staleInDest" not in result.data
    assert tree(f"{script.work}/repo") == selection(repo)
    refused = sync(one, repo, prune=True)
    assert refused.is_error and "cannot say what dest holds" in refused.text and len(script.uploads) == 2


def test_uncommitted_changes_are_named(script, adapter, repo):
    one = adapter()
    (repo / "a new one").write_text("x")
    result = sync(one, repo).data
    asked = subprocess.run(["git", "-C", repo, "status", "--porcelain", "-z", "--no-renames"], capture_output=True, check=True).stdout
    paths = [entry[3:].decode() for entry in asked.split(b"\0") if entry]
    assert result["uncommitted"] == {"count": len(paths), "paths": paths[:20]}


def test_the_lock_file_is_named(script, adapter, repo):
    one = adapter()
    assert "deps" not in sync(one, repo).data
    (repo / "package-lock.json").write_text("{}")
    assert sync(one, repo).data["deps"] == {"lockFile": "package-lock.json", "changed": True}
    assert sync(one, repo).data["deps"] == {"lockFile": "package-lock.json", "changed": False}


# --- after a failure --------------------------------------------------------------------------------------
def test_the_next_exec_on_that_box_is_told_once(script, adapter, repo):
    script.on_tool["sandbox_exec"] = lambda call: call.json(text_result({"exitCode": 0}))
    one = adapter()
    script.on_box["sync"] = lambda handler, _query: handler.answer_json(500, {"error": "disk full"}) or True
    assert sync(one, repo).text.startswith("NOT SYNCED")

    def texts(box):
        return [block["text"] for block in one.request("tools/call", {"name": "sandbox_exec", "arguments": {"id": box}})["content"]]

    assert len(texts("other")) == 1
    told = texts("b1")
    assert len(told) == 2 and "NOT SYNCED" in told[1] and "repo" in told[1]
    assert len(texts("b1")) == 1
    assert sync(one, repo).is_error
    del script.on_box["sync"]
    assert sync(one, repo).data["ok"]
    assert len(texts("b1")) == 1
