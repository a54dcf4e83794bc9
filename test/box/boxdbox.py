"""The real boxd in namespaces of its own: what its tests share."""

import io
import tarfile

import pytest

from guestproto import Box, boxd_path


def sanitized():
    with open(boxd_path(), "rb") as f:
        return b"__asan_init" in f.read()


plain_only = pytest.mark.skipif(sanitized(), reason="memory is measured without sanitizers")


@pytest.fixture(scope="module")
def box():
    with Box() as b:
        yield b
        assert b.alive()


@pytest.fixture
def fresh():
    with Box() as b:
        yield b
        assert b.alive()


def sh(box, cmd, **fields):
    r = box.exec(cmd, **fields)
    assert r["exitCode"] == 0, (cmd, dict(r), r.stderr)
    return r.stdout.decode("utf-8", "surrogateescape")


def process_count(box):
    return int(sh(box, "ls -d /proc/[0-9]* | wc -l"))


def tar_of(*members, fmt=tarfile.PAX_FORMAT):
    """Members: (name, bytes) or (name, dict of TarInfo fields [, bytes])."""
    f = io.BytesIO()
    with tarfile.open(fileobj=f, mode="w", format=fmt, errors="surrogateescape", encoding="utf-8") as t:
        for m in members:
            info = tarfile.TarInfo(m[0])
            info.mode = 0o644
            body = m[1] if isinstance(m[1], bytes) else m[2] if len(m) > 2 else b""
            if isinstance(m[1], dict):
                for k, v in m[1].items():
                    setattr(info, k, v)
            info.size = len(body)
            t.addfile(info, io.BytesIO(body))
    return f.getvalue()
