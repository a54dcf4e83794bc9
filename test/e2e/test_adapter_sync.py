"""sandbox_sync and sandbox_pull of the adapter, against the scripted server: trees are compared after every sync."""

import filecmp
import gzip
import io
import json
import os
import re
import socket
import stat
import subprocess
import tarfile
import threading
import time
from pathlib import Path

import pytest

from adapter_scripted import adapter, binary, script  # noqa: F401
from mcpclient import StdioMcp
from scripted_server import ScriptedServer, text_result


def git(cwd, *args, **more):
    done = subprocess.run(["git", "-c", "user.name=t", "-c", "user.email=t@localhost", "-c", "init.defaultBranch=main", *args],
                          cwd=cwd, check=True, capture_output=True, **more)
    return done.stdout.decode(errors="surrogateescape")


@pytest.fixture
def repo(tmp_path):
    root = tmp_path / "proj"
    (root / "src").mkdir(parents=True)
    (root / "a.txt").write_text("a")
    (root / "src" / "b.c").write_text("int b;")
    (root / "run.sh").write_text("#!/bin/sh\n")
    (root / "run.sh").chmod(0o755)
    (root / ".gitignore").write_text("ignored/\n*.o\n.env\n")
    git(root, "init", "-q")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "one")
    (root / "new.txt").write_text("untracked")
    (root / "ignored").mkdir()
    (root / "ignored" / "big").write_text("x")
    (root / "src" / "b.o").write_text("o")
    (root / ".env").write_text("SECRET=1")
    return root


def tree(root):
    """{path: what it is} of everything but .git."""
    found = {}
    for folder, dirs, names in os.walk(os.fsencode(root)):
        dirs[:] = [d for d in dirs if d != b".git"]
        for name in names + [d for d in dirs if os.path.islink(os.path.join(folder, d))]:
            full = os.path.join(folder, name)
            path = os.path.relpath(full, os.fsencode(root))
            if os.path.islink(full):
                found[path] = ("link", os.readlink(full))
            else:
                with open(full, "rb") as file:
                    found[path] = (bool(os.stat(full).st_mode & 0o111), file.read())
    return found


def selection(root):
    names = subprocess.run(["git", "ls-files", "-z", "-co", "--exclude-standard"], cwd=root, capture_output=True, check=True).stdout
    wanted = {n for n in names.split(b"\0") if n}
    return {path: value for path, value in tree(root).items() if path in wanted}


def sync(one, root, dest="repo", **more):
    return one.tool("sandbox_sync", {"id": "b1", "localPath": str(root), "dest": dest, **more})


# --- git trees --------------------------------------------------------------------------------------------
def test_first_unchanged_and_one_edit(script, adapter, repo):
    one = adapter()
    result = sync(one, repo)
    assert tree(f"{script.work}/repo") == selection(repo)
    assert result["ok"] and result["dest"] == "repo" and result["remotePath"] == "/work/repo"
    assert result["files"] == result["sentFiles"] == 5 and result["changedOnBox"] == 5 and result["uploadedBytes"] > 0
    assert sorted(result["sentPaths"]) == [".gitignore", "a.txt", "new.txt", "run.sh", "src/b.c"]
    assert result["skipped"] == [".env", "ignored"] and result["partiallyIgnored"] == ["src"]
    assert script.rest[-1] == ("sync", {"dest": "repo", "repo": "proj"})
    assert any("no .git" in n for n in result["notes"]) and any(".env" in n for n in result["notes"])

    script.rest.clear()
    result = sync(one, repo)
    assert result["sentFiles"] == 0 and result["sentPaths"] == [] and [op for op, _ in script.rest] == ["plan"]

    (repo / "src" / "b.c").write_text("int c;")
    result = sync(one, repo)
    assert result["sentPaths"] == ["src/b.c"] and tree(f"{script.work}/repo") == selection(repo)


def test_a_file_edited_in_the_box_gets_the_local_version_back(script, adapter, repo):
    one = adapter()
    sync(one, repo)
    Path(script.work, "repo", "a.txt").write_text("box")
    Path(script.work, "repo", "run.sh").chmod(0o644)
    assert sorted(sync(one, repo)["sentPaths"]) == ["a.txt", "run.sh"]
    assert tree(f"{script.work}/repo") == selection(repo)


def test_mtimes_do_not_count(script, adapter, repo):
    one = adapter()
    sync(one, repo)
    os.utime(repo / "a.txt", (1, 1))
    assert sync(one, repo)["sentFiles"] == 0


def test_a_subfolder_of_a_repository(script, adapter, repo):
    one = adapter()
    assert sync(one, repo / "src", "s")["sentPaths"] == ["b.c"]
    assert script.rest[-1][1]["repo"] == "proj"


def test_odd_names(script, adapter, repo):
    one = adapter()
    for name in (b"caf\xe9", "ü\n x".encode(), b" lead", b"-dash", b"q\"uote", b"back\\slash", b"A", b"a", b"dir/\xff/x", b"\xf0\x9f\x98\x80"):
        full = os.path.join(os.fsencode(repo), name)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "wb") as file:
            file.write(name)
    long = Path(repo, *["d" * 100] * 3)
    long.mkdir(parents=True)
    (long / ("f" * 200)).write_text("deep")
    sync(one, repo)
    assert tree(f"{script.work}/repo") == selection(repo)
    assert sync(one, repo)["sentFiles"] == 0


def test_links(script, adapter, repo):
    one = adapter()
    (repo / "l1").symlink_to("a.txt")
    (repo / "dangling").symlink_to("nowhere")
    (repo / "loop").symlink_to("loop")
    (repo / "dir").symlink_to("src")
    (repo / "out").symlink_to("/etc")
    sync(one, repo)
    assert tree(f"{script.work}/repo") == selection(repo)
    (repo / "l1").unlink()
    (repo / "l1").symlink_to("run.sh")
    assert sync(one, repo)["sentPaths"] == ["l1"]


def test_a_tracked_folder_that_became_a_link(script, adapter, repo):
    one = adapter()
    (repo / "real").mkdir()
    (repo / "real" / "b.c").write_text("other")
    (repo / "src" / "b.o").unlink()
    (repo / "src" / "b.c").unlink()
    (repo / "src").rmdir()
    (repo / "src").symlink_to("real")
    sync(one, repo)
    assert tree(f"{script.work}/repo")[b"src"] == ("link", b"real")


def test_deleted_but_tracked_is_no_error(script, adapter, repo):
    one = adapter()
    sync(one, repo)
    (repo / "a.txt").unlink()
    result = sync(one, repo)
    assert result["staleInDest"] == {"count": 1, "paths": ["a.txt"], "countIsPartial": False}
    assert Path(script.work, "repo", "a.txt").exists()


def test_skip_worktree_is_no_deletion(script, adapter, repo):
    one = adapter()
    sync(one, repo)
    git(repo, "update-index", "--skip-worktree", "a.txt")
    git(repo, "update-index", "--assume-unchanged", "run.sh")
    (repo / "a.txt").unlink()
    (repo / "run.sh").unlink()
    result = sync(one, repo, prune=True)
    assert result["pruned"] == 0 and "staleInDest" not in result.data
    assert Path(script.work, "repo", "a.txt").exists() and Path(script.work, "repo", "run.sh").exists()


def test_sparse_checkout(script, adapter, repo):
    one = adapter()
    (repo / "other").mkdir()
    (repo / "other" / "x").write_text("x")
    git(repo, "add", "other")
    git(repo, "commit", "-qm", "two")
    sync(one, repo)
    git(repo, "sparse-checkout", "set", "--cone", "--sparse-index", "src")
    assert not (repo / "other").exists()
    assert sync(one, repo, prune=True)["pruned"] == 0 and Path(script.work, "repo", "other", "x").exists()


def test_nested_repository_submodule_fifo_and_socket_are_named(script, adapter, repo, tmp_path):
    one = adapter()
    inner = repo / "inner"
    inner.mkdir()
    git(inner, "init", "-q")
    (inner / "f").write_text("f")
    module = tmp_path / "module"
    module.mkdir()
    (module / "m").write_text("m")
    git(module, "init", "-q")
    git(module, "add", "-A")
    git(module, "commit", "-qm", "m")
    git(repo, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(module), "vendor/mod")
    (repo / "tracked-pipe").write_text("x")
    git(repo, "add", "tracked-pipe")
    (repo / "tracked-pipe").unlink()
    os.mkfifo(repo / "tracked-pipe")
    result = sync(one, repo)
    notes = "\n".join(result["notes"])
    assert "inner" in notes and "vendor/mod" in notes and "tracked-pipe" in notes
    assert result["submodulesMissing"] == ["vendor/mod"]
    assert Path(script.work, "repo", ".gitmodules").exists() and not Path(script.work, "repo", "inner").exists()


def test_linked_worktree(script, adapter, repo, tmp_path):
    one = adapter()
    git(repo, "worktree", "add", "-q", str(tmp_path / "wt"))
    sync(one, tmp_path / "wt", "wt")
    assert tree(f"{script.work}/wt") == selection(tmp_path / "wt") and not Path(script.work, "wt", ".git").exists()


def test_started_by_a_git_hook(script, adapter, repo):
    one = adapter(GIT_DIR="/nonexistent", GIT_WORK_TREE="/", GIT_INDEX_FILE="/nonexistent/index")
    assert sync(one, repo)["files"] == 5


def test_the_users_index_is_not_touched(script, adapter, repo):
    one = adapter()
    before = (repo / ".git" / "index").stat().st_mtime_ns
    (repo / "a.txt").touch()
    sync(one, repo)
    assert (repo / ".git" / "index").stat().st_mtime_ns == before and not (repo / ".git" / "index.lock").exists()


def test_unreadable_file_is_named(script, adapter, repo):
    if os.geteuid() == 0:
        pytest.skip("root reads everything")
    (repo / "a.txt").chmod(0)
    assert "a.txt" in "\n".join(sync(adapter(), repo)["notes"])


def test_script_notes(script, adapter, repo):
    (repo / "gradlew").write_text("#!/bin/sh")
    (repo / "package-lock.json").write_text("{}")
    one = adapter()
    notes = "\n".join(sync(one, repo)["notes"])
    assert "gradlew" in notes and "package-lock.json" in notes and "dev server" not in notes
    (repo / "package.json").write_text("{}")
    assert "dev server" in "\n".join(sync(one, repo)["notes"])


def test_git_refusing_the_folder_is_no_plain_folder(script, adapter, repo, tmp_path):
    shim = tmp_path / "bin"
    shim.mkdir()
    (shim / "git").write_text("#!/bin/sh\necho \"fatal: detected dubious ownership in repository at '$2'\" >&2\nexit 128\n")
    (shim / "git").chmod(0o755)
    one = adapter(PATH=f"{shim}:{os.environ['PATH']}")
    result = sync(one, repo)
    assert result.is_error and "dubious ownership" in result.text and result.text.startswith("NOT SYNCED: /work/repo still has its old files")
    assert not script.uploads


# --- arguments --------------------------------------------------------------------------------------------
@pytest.mark.parametrize("dest", ["/etc", "~", "~/x", "..", "a/../b", "../x", "/work/../etc", "/workx"])
def test_bad_dest_is_refused_before_anything_is_sent(script, adapter, repo, dest):
    result = sync(adapter(), repo, dest)
    assert result.is_error and "`dest`" in result.text and not script.rest


@pytest.mark.parametrize("dest, path", [("/work/r", "r"), ("./a//b/", "a/b"), ("/work/", ""), ("/work", ""), ("a/./b", "a/b")])
def test_dest_forms(script, adapter, repo, dest, path):
    assert sync(adapter(), repo, dest)["dest"] == path
    assert tree(f"{script.work}/{path}") == selection(repo)


@pytest.mark.parametrize("args, named", [({}, "id"), ({"id": "b"}, "localPath"), ({"id": "b", "localPath": "/"}, "dest")])
def test_missing_arguments(adapter, args, named):
    result = adapter().tool("sandbox_sync", args)
    assert result.is_error and f"`{named}` is required" in result.text


@pytest.mark.parametrize("name, value", [("commit", "HEAD"), ("alsoPaths", ["a"]), ("baseline", "HEAD"), ("submodules", True)])
def test_what_comes_later_is_refused_by_name(script, adapter, repo, name, value):
    result = sync(adapter(), repo, **{name: value})
    assert result.is_error and f"`{name}` is not available yet" in result.text and not script.rest


def test_relative_paths_start_from_the_adapters_folder(script, adapter, repo):
    assert adapter(cwd=str(repo)).tool("sandbox_sync", {"id": "b", "localPath": ".", "dest": "r"})["files"] == 5


def test_wrong_types(script, adapter, repo):
    one = adapter()
    for more in ({"prune": "yes"}, {"maxMB": "1"}, {"exclude": [1]}, {"exclude": 3}, {"maxMB": -1}, {"exclude": ["!x"]}):
        result = sync(one, repo, **more)
        assert result.is_error and f"`{next(iter(more))}`" in result.text
    assert sync(one, repo / "nothing").is_error and not script.rest


# --- plain folders ----------------------------------------------------------------------------------------
def test_plain_folder(script, adapter, tmp_path):
    root = tmp_path / "plain"
    for name in ("a", "sub/b", "node_modules/x", "sub/dist/y", "target/z", ".hidden"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    (root / "empty").mkdir()
    os.mkfifo(root / "pipe")
    sock = socket.socket(socket.AF_UNIX)
    sock.bind(str(root / "sock"))
    one = adapter()
    result = sync(one, root, "p")
    assert set(tree(f"{script.work}/p")) == {b"a", b"sub/b", b".hidden"} and Path(script.work, "p", "empty").is_dir()
    assert sorted(result["skipped"]) == ["node_modules", "target"] and "pipe" in "\n".join(result["notes"])
    assert "repo" not in script.rest[-1][1]
    refused = sync(one, root, "p", prune=True)
    assert refused.is_error and "outside git" in refused.text
    assert sync(one, root, "q", includeIgnored=True)["files"] == 6
    sock.close()


def test_include_ignored_sends_all_but_git(script, adapter, repo):
    sync(adapter(), repo, includeIgnored=True)
    assert tree(f"{script.work}/repo") == tree(repo) and not Path(script.work, "repo", ".git").exists()


# --- exclude, prune, dryRun, maxMB ------------------------------------------------------------------------
def test_exclude(script, adapter, repo):
    (repo / "docs" / "x").mkdir(parents=True)
    (repo / "docs" / "x" / "y.md").write_text("y")
    (repo / "docs" / "z.md").write_text("z")
    result = sync(adapter(), repo, exclude=["*.txt", "docs/x/", "/run.sh"])
    assert set(tree(f"{script.work}/repo")) == {b".gitignore", b"src/b.c", b"docs/z.md"} and result["excluded"] == 4


def test_prune(script, adapter, repo):
    one = adapter()
    sync(one, repo)
    box = Path(script.work, "repo")
    for name in ("old.txt", "gone/deep/x", "src/b.o", "ignored/made", "kept.md"):
        (box / name).parent.mkdir(parents=True, exist_ok=True)
        (box / name).write_text(name)
    (box / "node_modules").mkdir()
    (box / "node_modules" / "m").write_text("m")
    (repo / "a.txt").unlink()
    dry = sync(one, repo, prune=True, dryRun=True, exclude=["*.md"])
    assert sorted(dry["staleInDest"]["paths"]) == ["a.txt", "gone/deep/x", "old.txt"] and (box / "old.txt").exists()
    result = sync(one, repo, prune=True, exclude=["*.md"])
    assert result["pruned"] == 3 and not (box / "old.txt").exists() and not (box / "gone").exists() and not (box / "a.txt").exists()
    assert (box / "src/b.o").exists() and (box / "ignored/made").exists() and (box / "node_modules/m").exists() and (box / "kept.md").exists()


def test_prune_more_than_the_box_names_at_once(script, adapter, repo):
    one = adapter()
    sync(one, repo)
    for n in range(25):
        Path(script.work, "repo", f"old{n}").write_text("x")
    script.extras_max = 10
    assert sync(one, repo)["staleInDest"] == {"count": 10, "paths": [f"old{n}" for n in (0, 1, 10, 11, 12, 13, 14, 15, 16, 17)],
                                              "countIsPartial": True}
    assert sync(one, repo, prune=True)["pruned"] == 25
    assert tree(f"{script.work}/repo") == selection(repo)


@pytest.mark.parametrize("dest, more, reason", [("/work", {}, "/work itself"), ("r", {"includeIgnored": True}, "includeIgnored")])
def test_prune_is_refused(script, adapter, repo, dest, more, reason):
    result = sync(adapter(), repo, dest, prune=True, **more)
    assert result.is_error and reason in result.text and not script.rest


def test_prune_of_an_ignored_folder_does_not_empty_dest(script, adapter, repo):
    result = sync(adapter(), repo / "ignored", "x", prune=True)
    assert result.is_error and "no file" in result.text and not script.uploads


def test_dry_run_sends_nothing(script, adapter, repo):
    result = sync(adapter(), repo, dryRun=True)
    assert result["dryRun"] and result["sentFiles"] == 5 and result["uploadedBytes"] == 0 and result["wouldSendBytes"] > 0
    assert [op for op, _ in script.rest] == ["plan"] and not Path(script.work, "repo").exists()


def test_max_mb(script, adapter, repo):
    one = adapter()
    (repo / "assets" / "video").mkdir(parents=True)
    (repo / "assets" / "video" / "big.bin").write_bytes(os.urandom(3 << 20))
    (repo / "second.bin").write_bytes(os.urandom(1 << 20))
    result = sync(one, repo, maxMB=2)
    assert result.is_error and result.text.startswith("NOT SYNCED: /work/repo still has its old files")
    assert "assets/video" in result.text and "maxMB" in result.text and not script.uploads
    assert sync(one, repo, maxMB=5)["sentFiles"] == 7
    assert sync(one, repo, maxMB=1)["sentFiles"] == 0  # only what would be sent counts


# --- one file ---------------------------------------------------------------------------------------------
def test_single_file(script, adapter, repo):
    one = adapter()
    result = sync(one, repo / "run.sh", "bin/tool")
    assert result["remotePath"] == "/work/bin/tool" and result["sentFiles"] == 1
    tool = Path(script.work, "bin", "tool")
    assert tool.read_text() == "#!/bin/sh\n" and tool.stat().st_mode & 0o111
    assert sync(one, repo / "run.sh", "bin/tool")["sentFiles"] == 0
    (repo / "run.sh").write_text("changed")
    assert sync(one, repo / "run.sh", "bin/tool")["sentFiles"] == 1 and tool.read_text() == "changed"
    assert sync(one, repo / "run.sh", "bin/")["remotePath"] == "/work/bin/run.sh"
    assert sync(one, repo / "a.txt", "bin")["remotePath"] == "/work/bin/a.txt"
    assert sync(one, repo / "a.txt", "bin")["sentFiles"] == 0
    assert sync(one, repo / "a.txt", "/work")["remotePath"] == "/work/a.txt" and Path(script.work, "a.txt").exists()
    assert sync(one, repo / "a.txt", "bin", prune=True).is_error
    assert sync(one, repo / "ignored" / "big", "made")["sentFiles"] == 1  # a file named by hand is sent, ignored or not
    assert sync(one, repo / "a.txt", "made/").is_error


# --- failures ---------------------------------------------------------------------------------------------
def test_upload_is_sent_a_second_time(script, adapter, repo):
    one = adapter()
    tries = []

    def once(handler, query):
        tries.append(query)
        if len(tries) == 1:
            next(handler.body_pieces())
            handler.reset()
            return True
        return False

    script.on_box["sync"] = once
    assert sync(one, repo)["sentFiles"] == 5 and len(tries) == 2
    assert tree(f"{script.work}/repo") == selection(repo)


@pytest.mark.parametrize("status", [502, 504])
def test_gateway_errors_are_tried_again_once(script, adapter, repo, status):
    tries = []

    def fail(handler, query):
        tries.append(b"".join(handler.body_pieces()))
        handler.answer_json(status, {"error": "bad gateway"})
        return True

    script.on_box["sync"] = fail
    result = sync(adapter(), repo)
    assert len(tries) == 2 and result.is_error and str(status) in result.text and "Failed while uploading" in result.text
    assert "src/b.c" in result.text


@pytest.mark.parametrize("status, code, text", [(404, "not_found", "no such box"), (409, "frozen", "the box cannot thaw"),
                                                (413, "too_large", "too much"), (507, "full", "the disk of the box is full")])
def test_refusals_are_quoted(script, adapter, repo, status, code, text):
    def refuse(handler, query):
        if status in (413, 409):  # before the body is read
            handler.answer_json(status, {"error": text, "code": code}, {"Connection": "close"})
            handler.close_connection = True
            time.sleep(0.2)
        else:
            b"".join(handler.body_pieces())
            handler.answer_json(status, {"error": text, "code": code})
        return True

    script.on_box["sync"] = refuse
    (repo / "big").write_bytes(os.urandom(3 << 20))
    result = sync(adapter(), repo)
    assert result.is_error and text in result.text and result.text.startswith("NOT SYNCED: /work/repo still has its old files")


def test_refused_plan(script, adapter, repo):
    script.on_box["plan"] = lambda handler, query: handler.answer_json(404, {"error": "no such box: b1", "code": "not_found"}) or b"".join(handler.body_pieces()) or True
    result = sync(adapter(), repo)
    assert result.is_error and "no such box: b1" in result.text and "comparing with the box" in result.text


@pytest.mark.parametrize("answer", [b"", b"\xff\xff\xff\xff", b"\x02\0\0\0{}\x09\0\0\0", b"\x02\0\0\0{}\x01\0\0\0\x00\0\0\0", b"\x02\0\0\0{}\x01",
                                    b"\x02\0\0\0[]", b"\x18\0\0\0" + b'{"extras":["Li4vZXRj"]} '])
def test_nonsense_from_the_server(script, adapter, repo, answer):
    def act(handler, query):
        b"".join(handler.body_pieces())
        handler.answer(200, "application/octet-stream", answer)
        return True

    script.on_box["plan"] = act
    result = sync(adapter(), repo)
    if answer == b"\x02\0\0\0[]":
        return
    assert result.is_error and not script.uploads


def test_stalled_upload_ends(script, adapter, repo):
    (repo / "big").write_bytes(os.urandom(12 << 20))
    script.on_box["sync"] = lambda handler, query: time.sleep(4) or True
    one = adapter(PSBX_ADAPTER_STALL_MS="700")
    begun = time.monotonic()
    result = sync(one, repo)
    assert result.is_error and "no byte moved" in result.text and time.monotonic() - begun < 4


def test_cancelled_sync(script, adapter, repo):
    (repo / "big").write_bytes(os.urandom(12 << 20))
    stopped = threading.Event()

    def act(handler, query):
        time.sleep(1)
        try:
            for _ in handler.body_pieces():
                pass
        except (OSError, ValueError):
            stopped.set()
        return True

    script.on_box["sync"] = act
    one = adapter()
    one.send({"jsonrpc": "2.0", "id": "s", "method": "tools/call",
              "params": {"name": "sandbox_sync", "arguments": {"id": "b", "localPath": str(repo), "dest": "r"}}})
    time.sleep(0.5)
    one.notify("notifications/cancelled", {"requestId": "s"})
    assert stopped.wait(5) and one.request("ping") == {} and not [m for m in one.messages if m.get("id") == "s"]


def test_ping_during_a_sync(script, adapter, repo):
    script.on_box["plan"] = lambda handler, query: time.sleep(1)
    one = adapter()
    one.send({"jsonrpc": "2.0", "id": "s", "method": "tools/call",
              "params": {"name": "sandbox_sync", "arguments": {"id": "b", "localPath": str(repo), "dest": "r"}}})
    begun = time.monotonic()
    assert one.request("ping") == {} and time.monotonic() - begun < 0.5
    assert one.wait(lambda m: m.get("id") == "s", 5)["result"]["structuredContent"]["ok"]


# --- the digest cache -------------------------------------------------------------------------------------
def test_same_tick_edits_of_the_same_size(script, adapter, repo):
    one = adapter()
    victim = repo / "a.txt"
    for n in range(60):
        text = f"{n:04d}"
        victim.write_text(text)
        sync(one, repo)
        assert Path(script.work, "repo", "a.txt").read_text() == text
        victim.write_text(text[::-1])  # at once, same size
        os.utime(victim, ns=(10**18, 10**18)) if n % 2 else None
        sync(one, repo)
        assert Path(script.work, "repo", "a.txt").read_text() == text[::-1]


def test_cache_is_used_and_survives_damage(script, adapter, repo, tmp_path):
    one = adapter()
    old = time.time() - 100
    for name in ("a.txt", "src/b.c", "run.sh", "new.txt", ".gitignore"):
        os.utime(repo / name, (old, old))
    time.sleep(0.3)  # ctimes must be older than the moment they are hashed
    sync(one, repo)
    files = list((tmp_path / "cache" / "parallelsandbox" / "digests").iterdir())
    assert len(files) == 1 and stat.S_IMODE(files[0].stat().st_mode) == 0o600 and files[0].stat().st_size == 24 + 5 * 72
    saved = files[0].stat().st_mtime_ns
    assert sync(one, repo)["sentFiles"] == 0 and files[0].stat().st_mtime_ns == saved  # nothing was hashed, nothing is written
    data = bytearray(files[0].read_bytes())
    data[100] ^= 1
    files[0].write_bytes(data)
    assert sync(one, repo)["sentFiles"] == 0
    files[0].write_bytes(b"short")
    assert sync(one, repo)["sentFiles"] == 0


def test_random_edits_on_both_sides(script, adapter, repo):
    import random
    dice = random.Random(11)
    one = adapter()

    def mess(root, also):
        for _ in range(dice.randrange(1, 6)):
            path = root / dice.choice(["a", "b", "d1/c", "d1/d2/e", "src/b.c", "x.o", "d1/d2", "a/in"])
            try:
                kind = dice.randrange(5)
                if kind == 0 and path.is_file():
                    path.unlink()
                elif kind == 1:
                    path.parent.mkdir(parents=True, exist_ok=True)
                    if not path.exists() and not path.is_symlink():
                        path.symlink_to(dice.choice(["a.txt", "no"]))
                else:
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_text(str(dice.randrange(3)))
                    path.chmod(dice.choice([0o644, 0o755]))
            except OSError:
                pass

    for _ in range(60):
        mess(repo, None)
        mess(Path(script.work, "repo"), None)
        sync(one, repo, prune=True)
        there = {p: v for p, v in tree(f"{script.work}/repo").items() if not p.endswith(b".o")}
        assert there == {p: v for p, v in selection(repo).items()}


def test_gzip_for_a_far_server(script, adapter, repo):
    # any name but a loopback one counts as far away
    with open("/etc/hosts", encoding="utf-8") as hosts:
        name = next((w for row in hosts if row.startswith("127.") for w in row.split("#")[0].split()[1:] if w != "localhost"), None)
    if not name:
        pytest.skip("no second name for this machine")
    one = adapter(PARALLELSANDBOX_API_URL=f"http://{name}:{script.port}")
    sync(one, repo)
    assert script.uploads[0][:2] == b"\x1f\x8b" and tree(f"{script.work}/repo") == selection(repo)


# --- pull -------------------------------------------------------------------------------------------------
def archive(members, gz=True):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, what in members:
            info = tarfile.TarInfo(name)
            info.mode = 0o755
            if what is None:
                info.type = tarfile.DIRTYPE
            elif isinstance(what, bytes):
                info.size = len(what)
                info.mode = 0o4644
            elif isinstance(what, int):
                info.type = what.to_bytes(1, "big")
            else:
                info.type, info.linkname = what
            tar.addfile(info, io.BytesIO(what) if isinstance(what, bytes) else None)
    return gzip.compress(out.getvalue()) if gz else out.getvalue()


def offer(script, data, is_archive, **more):
    script.blobs["/v1/blobs/x"] = data
    script.on_tool["sandbox_get"] = lambda call: call.json(text_result({
        "url": f"{script.url}/v1/blobs/x?sig=1", "bytes": len(data) if isinstance(data, bytes) else 0, "archive": is_archive, **more}))


def pull(one, local, **more):
    return one.tool("sandbox_pull", {"id": "b", "path": "app/dist", "localPath": str(local), **more})


def test_pull_of_a_file(script, adapter, tmp_path):
    one = adapter()
    offer(script, b"content", False)
    result = pull(one, tmp_path / "new" / "f.txt")
    assert (tmp_path / "new" / "f.txt").read_bytes() == b"content" and result["bytes"] == 7 and not result["extracted"]
    assert script.calls[-1]["arguments"] == {"id": "b", "path": "app/dist"}
    assert "Authorization" not in [h for p, h in script.seen if p == "/v1/blobs/x"][0]
    (tmp_path / "s.sh").write_text("old")
    (tmp_path / "s.sh").chmod(0o755)
    one.tool("sandbox_pull", {"id": "b", "path": "x", "dest": str(tmp_path / "s.sh")})
    assert (tmp_path / "s.sh").read_bytes() == b"content" and (tmp_path / "s.sh").stat().st_mode & 0o111
    assert pull(one, tmp_path / "new").is_error
    assert sorted(os.listdir(tmp_path / "new")) == ["f.txt"]


GOOD = [("dist", None), ("dist/index.html", b"<html>"), ("dist/a/b.js", b"x" * 70000), ("dist/l", (tarfile.SYMTYPE, "a/b.js")),
        ("dist/h", (tarfile.LNKTYPE, "dist/index.html")), ("dist/empty", None)]


@pytest.mark.parametrize("gz", [True, False])
def test_pull_of_a_folder(script, adapter, tmp_path, gz):
    one = adapter()
    offer(script, archive(GOOD, gz), True, changedWhileReading=["log"])
    out = tmp_path / "out"
    out.mkdir()
    (out / "mine").write_text("kept")
    (out / "index.html").write_text("old")
    result = pull(one, out)
    assert result["files"] == 4 and sorted(result["paths"]) == ["a/b.js", "h", "index.html", "l"] and result["changedWhileReading"] == ["log"]
    assert set(tree(out)) == {b"mine", b"index.html", b"a/b.js", b"l", b"h"} and (out / "index.html").read_text() == "<html>"
    assert (out / "empty").is_dir() and not (out / "index.html").stat().st_mode & 0o7000
    assert sorted(os.listdir(tmp_path)) == sorted({"out", "work"} | ({"cache"} & set(os.listdir(tmp_path))))


def test_pull_without_extracting(script, adapter, tmp_path):
    offer(script, archive(GOOD), True)
    result = pull(adapter(), tmp_path / "d.tgz", extract=False)
    assert not result["extracted"] and tarfile.open(tmp_path / "d.tgz").getnames()[0] == "dist"


HOSTILE = [
    [("d/../../evil", b"x")], [("/evil", b"x")], [("d/up", (tarfile.SYMTYPE, "../..")), ("d/up/evil", b"x")],
    [("d/abs", (tarfile.SYMTYPE, "/")), ("d/abs/tmp/evil", b"x")], [("d/hard", (tarfile.LNKTYPE, "../../secret"))],
    [("d/hard", (tarfile.LNKTYPE, "/etc/passwd"))], [("d/dev", ord("3"))], [("d/fifo", ord("6"))],
    [("d/sub", None), ("d/sub/l", (tarfile.SYMTYPE, "..")), ("d/z", (tarfile.SYMTYPE, "sub/l/../evil"))],
    [("d/a", (tarfile.SYMTYPE, "b")), ("d/b", (tarfile.SYMTYPE, "..")), ("d/a/evil", b"x")],
    [("../evil", b"x")], [("d/x", (tarfile.SYMTYPE, "y")), ("d/x", b"through")],
]


@pytest.mark.parametrize("members", HOSTILE)
@pytest.mark.parametrize("clean", [False, True])
def test_hostile_archive_writes_nothing_outside(script, adapter, tmp_path, members, clean):
    jail = tmp_path / "jail"
    (jail / "out").mkdir(parents=True)
    (jail / "secret").write_text("secret")
    offer(script, archive([("d", None), *members, ("d/good", b"good")]), True)
    result = pull(adapter(), jail / "out", clean=clean)
    assert (jail / "out" / "good").read_text() == "good"
    assert sorted(os.listdir(jail)) == ["out", "secret"] and (jail / "secret").read_text() == "secret"
    if members[-1][0] != "d/x":
        assert any(n.startswith("Not written") for n in result["notes"]), result
    for path, value in tree(jail / "out").items():
        if value[0] == "link":
            real = os.path.realpath(os.path.join(os.fsencode(jail / "out"), path))
            assert real.startswith(os.fsencode(jail / "out")), (path, value)


def test_local_link_is_not_followed(script, adapter, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "a").symlink_to(outside)
    offer(script, archive(GOOD), True)
    result = pull(adapter(), tmp_path / "out")
    assert not os.listdir(outside) and any("link" in n for n in result["notes"])


def test_clean_swaps(script, adapter, tmp_path):
    out = tmp_path / "out"
    (out / "old").mkdir(parents=True)
    (out / "old" / "x").write_text("x")
    (out / "index.html").write_text("old")
    offer(script, archive(GOOD), True)
    result = pull(adapter(), out, clean=True)
    assert set(tree(out)) == {b"index.html", b"a/b.js", b"l", b"h"} and result["removed"] == 1 and result["removedPaths"] == ["old/x"]
    assert "out" in os.listdir(tmp_path) and not [n for n in os.listdir(tmp_path) if "psbx" in n]


def test_clean_is_refused(script, adapter, tmp_path, repo):
    offer(script, archive(GOOD), True)
    one = adapter(cwd=str(tmp_path / "work"))
    holds = tmp_path / "holds"
    (holds / "deep" / ".git").mkdir(parents=True)
    for target in (repo, tmp_path, tmp_path / "work", "/", holds):
        before = tree(target) if target != "/" else None
        result = pull(one, target, clean=True)
        assert result.is_error and ("refused" in result.text or "root" in result.text), (target, result)
        assert target == "/" or tree(target) == before


@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("how", ["cut", "damaged", "refused", "silent"])
def test_failed_download_leaves_everything(script, adapter, tmp_path, clean, how):
    out = tmp_path / "out"
    out.mkdir()
    (out / "index.html").write_text("old")
    data = archive(GOOD)

    def cut(handler):
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data[:len(data) // 2])
        handler.wfile.flush()
        if how == "silent":
            time.sleep(3)
        handler.reset()

    offer(script, {"cut": cut, "silent": cut, "damaged": data[:200] + b"xxxx" + data[204:],
                   "refused": lambda handler: handler.answer_json(410, {"error": "gone"})}[how], True)
    result = pull(adapter(PSBX_ADAPTER_STALL_MS="600"), out, clean=clean)
    assert result.is_error and "localPath is as it was" in result.text
    assert tree(out) == {b"index.html": (False, b"old")} and not [n for n in os.listdir(tmp_path) if "psbx" in n]
    if how == "refused":
        assert len(script.calls) == 2


def test_refused_link_is_fetched_afresh(script, adapter, tmp_path):
    data, tries = b"content", []

    def once(handler):
        tries.append(1)
        if len(tries) == 1:
            handler.answer_json(403, {"error": "expired"})
        else:
            handler.answer(200, "text/plain", data)

    offer(script, once, False)
    assert pull(adapter(), tmp_path / "f")["bytes"] == 7 and (tmp_path / "f").read_bytes() == data


def test_pull_passes_on_the_tools_error(script, adapter, tmp_path):
    script.on_tool["sandbox_get"] = lambda call: call.json(text_result("no such path: app/dist", is_error=True))
    result = pull(adapter(), tmp_path / "f")
    assert result.is_error and result.text == "no such path: app/dist" and not (tmp_path / "f").exists()
