"""sandbox_get: files and folders out of a box, and the signed links to them."""

import base64
import gzip
import hashlib
import io
import re
import tarfile
import urllib.parse
import zlib

import pytest


def png(width, height, noise=False):
    """A valid PNG; with noise it does not compress."""
    import random
    import struct
    rng = random.Random(1)
    rows = b"".join(b"\0" + (rng.randbytes(width * 3) if noise else b"\x40\x80\xc0" * width) for _ in range(height))

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


@pytest.fixture(scope="module")
def one(server):
    client = server.client()
    name = client.start(size="small")
    yield client, name
    client.stop(name)


def get(one, path=None, **arguments):
    client, box = one
    return client.tool("sandbox_get", {"id": box, **({"path": path} if path is not None else {}), **arguments})


def sh(one, cmd, **arguments):
    result = one[0].exec(one[1], cmd, **arguments)
    assert result["exitCode"] == 0, result
    return result["stdout"]


def put(one, path, data):
    text = base64.b64encode(data).decode()
    sh(one, f"mkdir -p \"$(dirname '{path}')\"; : > '{path}'")
    for at in range(0, len(text), 900000):
        sh(one, f"base64 -d >> '{path}'", stdin=text[at:at + 900000])


def download(one, result):
    status, headers, data = one[0].fetch(result["url"])
    assert status == 200
    assert len(data) == result["bytes"] == int(headers["content-length"])
    return data


def test_a_file(one):
    digest = sh(one, "mkdir -p d; head -c 3000000 /dev/urandom > 'd/some file é.bin'; sha256sum < 'd/some file é.bin'").split()[0]
    for path in ("d/some file é.bin", "/work/d/some file é.bin", "./d/some file é.bin"):
        result = get(one, path)
        assert result["bytes"] == 3000000
        assert result["archive"] is False
        assert result["changedWhileReading"] == []
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+Z", result["expiresAt"])
        assert hashlib.sha256(download(one, result)).hexdigest() == digest


def test_an_empty_file(one):
    sh(one, "touch empty")
    result = get(one, "empty")
    assert result["bytes"] == 0 and download(one, result) == b""
    status, headers, _ = one[0].fetch(result["url"], {"Range": "bytes=0-0"})
    assert status in (200, 416)


def test_a_folder_has_itself_on_top(one):
    sh(one, "mkdir -p tree/sub/empty; echo a > tree/a; echo b > tree/sub/b; chmod 755 tree/a; ln -sf a tree/link; chmod 600 tree/sub/b")
    result = get(one, "tree")
    assert result["archive"] is True
    assert result["contentType"] in ("application/gzip", "application/x-gzip")
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(download(one, result)))) as tar:
        members = {member.name.rstrip("/"): member for member in tar.getmembers()}
        assert set(members) == {"tree", "tree/a", "tree/link", "tree/sub", "tree/sub/b", "tree/sub/empty"}
        assert members["tree"].isdir() and members["tree/link"].linkname == "a"
        assert members["tree/a"].mode & 0o111 and members["tree/sub/b"].mode & 0o777 == 0o600
        assert tar.extractfile("tree/sub/b").read() == b"b\n"


def test_the_whole_of_work(one):
    sh(one, "echo here > marker")
    for path in (".", "/work", "/work/"):
        result = get(one, path)
        assert result["archive"] is True
        with tarfile.open(fileobj=io.BytesIO(download(one, result))) as tar:
            names = tar.getnames()
        assert len({name.split("/")[0] for name in names}) == 1, "one folder on top"
        assert any(name.endswith("/marker") for name in names)


def test_tmp_and_shm(one):
    sh(one, "echo t > /tmp/t.txt; mkdir -p /dev/shm/s; echo s > /dev/shm/s/s.txt")
    assert download(one, get(one, "/tmp/t.txt")) == b"t\n"
    assert download(one, get(one, "/dev/shm/s/s.txt")) == b"s\n"
    assert get(one, "/dev/shm/s")["archive"] is True


@pytest.mark.parametrize("path, words", [
    ("missing", ["missing"]), ("d/missing/deeper", ["missing"]), ("/etc/passwd", ["/etc/passwd", "below /work"]), ("../etc/passwd", [".."]),
    ("a/../../etc/passwd", [".."]), ("/work/../etc/passwd", [".."]), ("/tmp/../etc/passwd", [".."]), ("/dev/shm/../../etc/passwd", [".."]),
    ("~/x", ["~"]), ("/tmpfoo", ["/tmpfoo"]), ("out/passwd", ["out/passwd"]), ("outfile", ["outfile"]), ("/tmp/out/passwd", ["out/passwd"]),
    ("a\0b", ["path", "NUL"]), ("", ["path"]), ("pipe", ["pipe"]),
])
def test_what_cannot_be_got(one, path, words):
    sh(one, "ln -sfn /etc out; ln -sfn /etc/passwd outfile; ln -sfn /etc /tmp/out; [ -p pipe ] || mkfifo pipe; mkdir -p a")
    result = get(one, path)
    assert result.is_error, result
    for word in words:
        assert word in result.text, result.text


def test_a_folder_with_links_out_and_odd_things(one):
    sh(one, "mkdir -p odd; ln -sfn /etc odd/out; ln -sfn /etc/passwd odd/file; [ -p odd/pipe ] || mkfifo odd/pipe; echo x > odd/x; "
            "ln -sfn loop odd/loop; python3 -c \"import socket; s = socket.socket(socket.AF_UNIX); s.bind('odd/sock')\" 2>/dev/null; true")
    result = get(one, "odd")
    with tarfile.open(fileobj=io.BytesIO(download(one, result))) as tar:
        for member in tar.getmembers():
            assert member.isdir() or member.isfile() or member.issym(), member
        assert tar.extractfile("odd/x").read() == b"x\n"
        assert not any("passwd" in name for name in tar.getnames())
        assert tar.getmember("odd/out").issym()


def test_several(one):
    sh(one, "echo 1 > one; echo 2 > two; mkdir -p three; echo 3 > three/3")
    result = get(one, paths=["one", "/work/two", "missing", "three", "../up"])
    one_, two, missing, three, up = result["files"]
    assert [row["path"] for row in result["files"]] == ["one", "/work/two", "missing", "three", "../up"]
    assert download(one, one_) == b"1\n" and download(one, two) == b"2\n"
    assert three["archive"] is True
    assert "missing" in missing["error"] and "url" not in missing
    assert ".." in up["error"]


def test_a_long_list_stays_small(one):
    deep = "/".join(["n" * 200] * 15)
    sh(one, f"mkdir -p {deep}; cd {deep}; touch f1 f2")
    result = get(one, paths=[f"{deep}/f{1 + n % 2}" for n in range(50)])
    assert not result.is_error
    assert len(result.content[0]["text"]) <= 32 << 10
    got = [row for row in result["files"] if "url" in row]
    assert got and len(got) + result.data.get("leftOut", 0) == 50
    assert len(got) == 50 or "leftOut" in result.data


def test_arguments(one):
    for arguments in ({}, {"path": "x", "paths": ["y"]}):
        result = get(one, **arguments)
        assert result.is_error and "path" in result.text and "paths" in result.text
    assert "paths" in get(one, paths=[]).text
    assert "paths" in get(one, paths=[7]).text and "7" in get(one, paths=[7]).text
    assert "51" in get(one, paths=["x"] * 51).text or "50" in get(one, paths=["x"] * 51).text


def test_small_images_come_inline(one):
    small = png(40, 30)
    put(one, "img/small.png", small)
    result = get(one, "img/small.png")
    image = next(block for block in result.content if block["type"] == "image")
    assert image["mimeType"] == "image/png"
    assert base64.b64decode(image["data"]) == small
    assert result["contentType"] == "image/png"
    assert "iVBOR" not in result.content[0]["text"]
    put(one, "img/big.png", png(1000, 700, noise=True))
    result = get(one, "img/big.png")
    assert [block["type"] for block in result.content] == ["text"], "an image over 1 MB is only linked"
    put(one, "img/fake.png", b"not an image at all")
    assert [block["type"] for block in get(one, "img/fake.png").content] == ["text"]


def test_the_first_ten_images(one):
    for n in range(12):
        put(one, f"many/{n}.png", png(8 + n, 8))
    result = get(one, paths=[f"many/{n}.png" for n in range(12)])
    assert [block["type"] for block in result.content] == ["text"] + ["image"] * 10
    assert len(result["files"]) == 12


def test_links(one):
    client, _ = one
    sh(one, "printf '0123456789' > 'digits é.txt'")
    result = get(one, "digits é.txt")
    url = result["url"]
    assert url.startswith(client.origin + "/v1/blobs/"), "on our own address"
    assert client.key not in url
    status, headers, data = client.fetch(url)
    assert (status, data) == (200, b"0123456789")
    assert headers["content-disposition"].startswith("attachment")
    assert "digits" in headers["content-disposition"] and "UTF-8''digits%20%C3%A9.txt" in headers["content-disposition"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["accept-ranges"] == "bytes"
    for value, expected, content_range in (
            ("bytes=0-3", b"0123", "bytes 0-3/10"), ("bytes=4-", b"456789", "bytes 4-9/10"), ("bytes=-2", b"89", "bytes 8-9/10"),
            ("bytes=5-500", b"56789", "bytes 5-9/10"), ("bytes=-500", b"0123456789", "bytes 0-9/10"), ("bytes=9-9", b"9", "bytes 9-9/10")):
        status, headers, data = client.fetch(url, {"Range": value})
        assert (status, data, headers["content-range"]) == (206, expected, content_range), value
    for value in ("bytes=10-", "bytes=10-20", "bytes=-0"):
        status, headers, _ = client.fetch(url, {"Range": value})
        assert (status, headers["content-range"]) == (416, "bytes */10"), value
    for value in ("bytes=5-3", "lines=1-2", "bytes=x-y", "bytes=0-1,3-4", "bytes="):
        status, _, data = client.fetch(url, {"Range": value})
        assert (status, data) == (200, b"0123456789"), value


def test_head_and_other_methods(one):
    client, _ = one
    sh(one, "printf '0123456789' > digits")
    url = get(one, "digits")["url"]
    path = url[len(client.origin):]
    status, headers, data = client.rest("HEAD", path, headers={"Authorization": None})
    assert (status, data, headers["content-length"]) == (200, b"", "10")
    for method in ("POST", "DELETE", "PUT"):
        status, headers, _ = client.rest(method, path, headers={"Authorization": None})
        assert status == 405 and "GET" in headers["allow"]


def test_wrong_links(one):
    client, _ = one
    sh(one, "echo x > x; echo y > y")
    first, second = get(one, "x")["url"], get(one, "y")["url"]
    parts = urllib.parse.urlsplit(first)
    query = dict(urllib.parse.parse_qsl(parts.query))

    def ask(path=parts.path, **changed):
        return client.fetch(client.origin + path + "?" + urllib.parse.urlencode({**query, **changed}))[0]

    assert ask() == 200
    assert ask(sig="A" * len(query["sig"])) == 403
    assert ask(sig=query["sig"][:-1]) == 403
    assert ask(sig="") == 403
    assert ask(exp=str(int(query["exp"]) + 3600)) == 403, "no link can be made to live longer"
    assert ask(exp="1") == 403
    assert ask(exp="x") == 403
    assert ask(path=urllib.parse.urlsplit(second).path) == 403, "a signature is for one file"
    assert ask(path="/v1/blobs/../../state.db") in (400, 403, 404)
    assert ask(path="/v1/blobs/%2e%2e%2fstate.db") in (400, 403, 404)
    assert client.fetch(client.origin + parts.path)[0] == 403


def test_links_outlive_their_box(server):
    client = server.client()
    box = client.start(size="small")
    client.exec(box, "echo kept > kept")
    result = client.tool("sandbox_get", {"id": box, "path": "kept"})
    client.stop(box)
    assert client.fetch(result["url"])[2] == b"kept\n"
