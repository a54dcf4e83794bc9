"""People: how they come in, sign in, and leave; and what strangers meet."""

import threading
import time

import pytest
from browser import Browser
from oauthclient import PASSWORD, Client, people


def test_the_first_link_works_once(new_server):
    instance = new_server()
    link = instance.command("users", "invite", "--first").strip()
    newer = instance.command("users", "invite", "--first").strip()
    assert Browser(instance.url).get(link).status == 410, "a newer link takes the place of the older one"
    assert Browser(instance.url).get("/").heading == "Sign in"
    browser = Browser(instance.url)
    assert browser.join(newer, "Ada@Example.org", PASSWORD, "Ada").heading == "Hello, Ada"
    assert Browser(instance.url).get(newer).status == 410
    assert instance.command("users", "invite", "--first") == ""
    assert "ada@example.org" in instance.command("users", "list")


def test_two_at_once_with_one_link(new_server):
    instance = new_server()
    link = instance.command("users", "invite", "--first").strip()
    browsers = [Browser(instance.url) for _ in range(4)]
    pages = [browser.get(link) for browser in browsers]
    threads = [threading.Thread(target=browser.submit, args=(page, {"login": f"p{i}", "password": PASSWORD}))
               for i, (browser, page) in enumerate(zip(browsers, pages))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(browser.cookie("session") is not None for browser in browsers) == 1
    assert len(instance.command("users", "list").splitlines()) == 1


def test_what_a_person_needs_to_fill_in(new_server):
    instance = new_server()
    browser = Browser(instance.url)
    page = browser.get(instance.command("users", "invite", "--first").strip())
    for login, password, field in (("a b", PASSWORD, "login-error"), ("", PASSWORD, "login-error"), ("x" * 101, PASSWORD, "login-error"),
                                   ("ada", "short", "password-error"), ("ada", "aaaaaaaaaaaaaaa", "password-error"),
                                   ("adalovelace", "adalovelace1", "password-error"), ("ada", "x y" * 400, "password-error")):
        page = browser.submit(page, {"login": login, "password": password})
        assert page.status == 422 and f'id="{field}"' in page.body and 'aria-invalid="true"' in page.body, (login, password)
    assert browser.submit(page, {"login": "ada", "password": PASSWORD}).status == 200


def test_inviting_and_removing(new_server):
    instance = new_server()
    ada = people(instance)
    page = ada.get("/settings")
    page = ada.submit(page, {"note": "Grace <b>"}, action="/settings/people/invite#people")
    link = page.body.split("/join/")[1].split("<")[0]
    assert "Grace &lt;b&gt;" in page.body
    grace = Browser(instance.url)
    taken = grace.submit(grace.get("/join/" + link), {"login": "ADA", "password": PASSWORD})
    assert taken.status == 422 and "login-error" in taken.body, "the login is taken; the invitation still works"
    grace.join("/join/" + link, "grace", PASSWORD)
    client = Client(instance.url)
    pair = client.sign_in(grace)
    assert client.use(pair["access_token"]) == 200
    page = ada.get("/settings")
    forms = [f for f in page.forms if f["action"].startswith("/settings/people/remove")]
    assert len(forms) == 1, "nobody removes oneself"
    ada.post(forms[0]["action"], forms[0]["fields"])
    assert client.use(pair["access_token"]) == 401
    assert client.refresh(pair["refresh_token"])[1]["error"] == "invalid_grant"
    assert grace.get("/settings").heading == "Sign in"
    assert grace.sign_in("grace", PASSWORD).status == 422


def test_accounts_do_not_see_each_other(new_server):
    instance = new_server()
    people(instance)
    link = instance.command("users", "invite", "--new-account", "others").strip()
    bob = Browser(instance.url)
    assert bob.join(link, "bob", PASSWORD, "Bob").heading == "Hello, Bob"
    client = instance.client()
    box = client.start()
    status, _, body = client.rest("GET", "/v1/boxes")
    assert status == 200 and box in body.decode()
    theirs = bob.get("/v1/boxes")
    assert theirs.status == 200 and box not in theirs.body
    assert bob.get(f"/v1/boxes/{box}").status == 404
    assert "ada" not in bob.get("/settings").body
    client.stop(box)


def test_removing_from_the_command_line(new_server):
    instance = new_server()
    ada = people(instance)
    instance.command("users", "invite", "somebody")
    instance.command("users", "remove", "ada")
    assert ada.get("/settings").heading == "Sign in"
    assert instance.command("users", "list") == ""
    assert "/join/" in instance.command("users", "invite", "--first")


def test_sessions_are_listed_and_end(new_server):
    instance = new_server()
    one = people(instance)
    two, three = Browser(instance.url), Browser(instance.url)
    two.sign_in("ada", PASSWORD)
    three.sign_in("ada", PASSWORD)
    page = one.get("/settings")
    forms = [f for f in page.forms if f["action"] == "/settings/sessions/revoke#sessions"]
    assert len(forms) == 2, "not one's own: that is signing out"
    one.post(forms[0]["action"], forms[0]["fields"])
    assert sorted(b.get("/settings").heading for b in (two, three)) == ["Settings", "Sign in"]
    one.submit(one.get("/settings"), action="/settings/sessions/revoke-others#sessions")
    assert [b.get("/settings").heading for b in (two, three)] == ["Sign in", "Sign in"]
    page = one.submit(one.get("/sign-out"), action="/sign-out")
    assert page.heading == "You are signed out" and not one.cookie("session")
    assert one.get("/settings").heading == "Sign in"


def test_changing_the_password(new_server):
    instance = new_server()
    ada, other = people(instance), Browser(instance.url)
    other.sign_in("ada", PASSWORD)
    form = "/settings/password#password-section"
    page = ada.submit(ada.get("/settings"), {"current": "wrong password", "password": "another long password"}, action=form)
    assert page.status == 422 and "current-error" in page.body
    page = ada.submit(page, {"current": PASSWORD, "password": "short"}, action=form)
    assert page.status == 422 and "new-error" in page.body
    page = ada.submit(page, {"current": PASSWORD, "password": "another long password"}, action=form)
    assert page.status == 200 and ada.get("/settings").heading == "Settings"
    assert other.get("/settings").heading == "Sign in"
    assert Browser(instance.url).sign_in("ada", PASSWORD).status == 422
    assert Browser(instance.url).sign_in("ada", "another long password").status == 200


def test_strangers_learn_nothing_and_are_slowed_down(new_server):
    instance = new_server()
    ada = people(instance)
    unknown, known = Browser(instance.url), Browser(instance.url)
    a, b = unknown.sign_in("nobody", "a wrong password"), known.sign_in("ada", "a wrong password")
    strip = lambda page, login: page.body.replace(login, "X").split('value="')[0:1] + [page.status, page.heading]
    assert strip(a, "nobody") == strip(b, "ada")
    for guesser, login in ((unknown, "nobody"), (known, "ada")):
        statuses = [guesser.sign_in(login, "a wrong password").status for _ in range(8)]
        assert 429 in statuses, statuses
    page = known.sign_in("ada", PASSWORD)
    assert page.status == 429 and int(page.headers["Retry-After"]) >= 1, "the right password is not looked at either"
    assert Browser(instance.url).get("/sign-in").status == 200
    ada.submit(ada.get("/sign-out"), action="/sign-out")
    assert ada.sign_in("ada", PASSWORD).status == 200, "the browser of a person is not locked out by others"


def test_hashing_blocks_nobody(new_server):
    instance = new_server()
    people(instance)
    browsers = [Browser(instance.url) for _ in range(12)]
    threads = [threading.Thread(target=browser.sign_in, args=(f"login{i}", "a wrong password")) for i, browser in enumerate(browsers)]
    for thread in threads:
        thread.start()
    slowest = 0
    while any(thread.is_alive() for thread in threads):
        begin = time.monotonic()
        assert instance.get("/healthz")[0] == 200
        slowest = max(slowest, time.monotonic() - begin)
    for thread in threads:
        thread.join()
    assert slowest < 5  # a blocked loop would wait for all twelve


@pytest.mark.parametrize("to", ["//evil.example/", "https://evil.example/", "/\\evil.example", "/a b", "javascript:alert(1)", "\t//evil"])
def test_going_on_stays_here(server, to):
    people(server)
    browser = Browser(server.url)
    page = browser.get("/sign-in")
    page = browser.submit(page, {"login": "ada", "password": PASSWORD, "next": to}, follow=False)
    assert page.status == 303 and page.location == "/"


def test_going_on(server):
    people(server)
    browser = Browser(server.url)
    page = browser.get("/settings")
    assert page.heading == "Sign in"
    page = browser.submit(page, {"login": "ada", "password": PASSWORD})
    assert page.heading == "Settings"


@pytest.mark.parametrize("header,lang", [("ja", "ja"), ("zh-TW,zh;q=0.9", "zh-Hant"), ("zh-Hant-HK", "zh-Hant"), ("fr, en;q=0.3, ja;q=0.8", "ja"),
                                         ("fr", "en"), ("", "en"), ("en;q=0, ja;q=0.001", "ja"), ("*", "en"), (";;,,q=", "en")])
def test_languages(server, header, lang):
    page = Browser(server.url).get("/sign-in", headers={"Accept-Language": header})
    assert f'<html lang="{lang}">' in page.body and page.headers["Content-Language"] == lang


def test_the_chosen_language_stays(server):
    browser = Browser(server.url)
    assert '<html lang="ja">' in browser.get("/sign-in?lang=ja").body
    assert '<html lang="ja">' in browser.get("/sign-in").body
    assert '<html lang="ja">' in browser.get("/sign-in?lang=xx").body


def test_keys_of_a_browser_session(server):
    ada = people(server)
    session = ada.get("/v1/session")
    import json
    csrf = json.loads(session.body)["csrf"]
    headers = {"Content-Type": "application/json", "Origin": server.url}
    body = json.dumps({"name": "from the app"})
    assert ada.request("POST", "/v1/keys", body, headers).status == 401, "without the token"
    assert ada.request("POST", "/v1/keys", body, {**headers, "X-Psbx-Csrf": csrf[:-1] + "!"}).status == 401
    assert ada.request("POST", "/v1/keys", body, {**headers, "X-Psbx-Csrf": csrf, "Origin": "http://evil.example"}).status == 403
    made = json.loads(ada.request("POST", "/v1/keys", body, {**headers, "X-Psbx-Csrf": csrf}).body)
    assert Client(server.url, register=False).use(made["key"], "/v1/boxes") == 200
    listed = json.loads(ada.get("/v1/keys").body)["keys"]
    assert made["id"] in [k["id"] for k in listed] and made["key"] not in json.dumps(listed)
    assert ada.request("DELETE", "/v1/keys/" + made["id"], None, {"Origin": server.url, "X-Psbx-Csrf": csrf}).status == 204
    assert Client(server.url, register=False).use(made["key"], "/v1/boxes") == 401
    assert ada.request("DELETE", "/v1/keys/unknown", None, {"X-Psbx-Csrf": csrf}).status == 404
    assert ada.get("/v1/boxes").status == 200
    assert ada.request("POST", "/mcp", "{}", headers).status == 401, "a browser's cookie is nothing at /mcp"


def test_pages_tell_nobody_where_we_are(server):
    for path in ("/sign-in", "/join/nothing-here-nothing-here", "/authorize", "/settings"):
        page = Browser(server.url).get(path, follow=False)
        assert page.headers["Referrer-Policy"] == "same-origin" and page.headers["X-Frame-Options"] == "DENY"
        assert "no-store" in page.headers["Cache-Control"]
    assert Browser(server.url).request("PUT", "/sign-in").status == 405
    assert Browser(server.url).get("/assets/none.css").status == 404
