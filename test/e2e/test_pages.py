"""The pages in a real browser: every language, phone and desktop, light and dark; accessibility; passkeys."""

import base64
import json
import os
import shutil
import subprocess

import pytest
from oauthclient import PASSWORD, Client, people


@pytest.fixture(scope="module")
def chromium():
    path = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    if not path:
        pytest.skip("Chromium is not installed here (package chromium)")
    return path


def at_name(instance):
    """The server's address by name: browsers know passkeys for names only."""
    return instance.url.replace("127.0.0.1", "localhost")


def drive(peers, tmp_path, script, arguments, **env):
    path = peers.driver("browser", script, tmp_path)
    done = peers.run([path, *arguments], timeout=580, HOME=str(tmp_path), **env)
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return json.loads(done.stdout.strip().splitlines()[-1])


def test_every_page(new_server, peers, chromium, tmp_path):
    instance = new_server()
    client = Client(at_name(instance), name="Claude Code")
    link = instance.command("users", "invite", "--first").strip().replace("127.0.0.1", "localhost")
    seen = drive(peers, tmp_path, "pages.mjs", [at_name(instance), link, client.authorize_url()], CHROMIUM=chromium)
    assert not seen["problems"], "\n".join(seen["problems"])
    assert seen["visited"] > 100


def test_passkeys(new_server, peers, chromium, tmp_path):
    instance = new_server()
    people(instance)
    client = Client(at_name(instance))
    key = subprocess.run(["openssl", "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-outform", "DER"], check=True,
                         stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
    key = subprocess.run(["openssl", "pkcs8", "-topk8", "-nocrypt", "-inform", "DER", "-outform", "DER"], input=key, check=True,
                         stdout=subprocess.PIPE).stdout
    seen = drive(peers, tmp_path, "passkeys.mjs", [at_name(instance), client.authorize_url()], CHROMIUM=chromium, LOGIN="ada", PASSWORD=PASSWORD,
                 KEY=base64.b64encode(key).decode())
    assert seen["listed"] == "Test key <b>" and seen["credentials"] == 1 and not seen["accessibility"], seen
    assert seen["signedIn"] == "/settings" and seen["consent"] == {"password": 0, "who": 1}, seen
    assert seen["replay"] == {"made": 400, "wrong": 400, "again": 400}, seen
    assert "not known" in seen["unknown"] and not seen["problems"], seen
    assert seen["offeredAtAddress"] == 0 and seen["scriptless"] is True, seen
