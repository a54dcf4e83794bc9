"""Signing in as a client does: what is given, to whom, for how long, and how it ends."""

import sqlite3
import threading
import urllib.parse

import pytest
from browser import Browser
from oauthclient import PASSWORD, Client, people


@pytest.fixture(scope="module")
def ada(server):
    return people(server)


@pytest.fixture
def oauth(server):
    return Client(server.url)


def database(instance):
    return sqlite3.connect(instance.state / "state.db", timeout=30)


def test_tokens_work_on_mcp_and_rest(server, ada, oauth):
    pair = oauth.sign_in(ada)
    assert pair["token_type"] == "Bearer" and pair["expires_in"] == 3600 and pair["scope"] == "sandbox"
    assert oauth.use(pair["access_token"]) == 200
    assert oauth.use(pair["access_token"], "/v1/boxes") == 200
    assert oauth.use(pair["refresh_token"]) == 401
    assert oauth.use(pair["refresh_token"], "/v1/boxes") == 401


def test_signing_in_on_the_consent_page(server, ada, oauth):
    browser = Browser(server.url)
    page = browser.get(oauth.authorize_url())
    page = browser.submit(page, {"login": "ada", "password": "not the password"}, action="/authorize", button=("decision", "allow"))
    assert page.status == 422 and not page.location and not browser.cookie("session")
    page = browser.submit(page, {"login": "ADA ", "password": PASSWORD}, action="/authorize", button=("decision", "allow"))
    assert page.status == 303 and "code=" in page.location and browser.cookie("session")


def test_no_is_an_answer_that_needs_no_sign_in(server, ada, oauth):
    assert oauth.consent(Browser(server.url), "deny")["error"] == "access_denied"


def test_under_another_name_the_token_is_not_good(server, ada, oauth):
    pair = oauth.sign_in(ada)
    other = Client(server.url, register=False, host=f"localhost:{server.port}")
    status, body, headers = other.request("GET", "/v1/boxes", headers={"Authorization": f"Bearer {pair['access_token']}"})
    assert status == 401 and "127.0.0.1" in body["error"], body
    assert headers["WWW-Authenticate"].startswith(f'Bearer resource_metadata="http://localhost:{server.port}/.well-known/')


def test_another_server_does_not_take_it(server, ada, oauth, new_server):
    other = new_server()
    assert Client(other.url).use(oauth.sign_in(ada)["access_token"]) == 401


def test_metadata_is_told_under_the_name_that_was_used(server):
    for name in ("127.0.0.1", "localhost", "[::1]"):
        client = Client(server.url, register=False, host=f"{name}:{server.port}")
        for path in ("/.well-known/oauth-protected-resource", "/.well-known/oauth-protected-resource/mcp"):
            status, body, headers = client.request("GET", path)
            assert status == 200 and body["resource"] == f"http://{name}:{server.port}/mcp"
            assert body["authorization_servers"] == [f"http://{name}:{server.port}"]
            assert headers["Access-Control-Allow-Origin"] == "*"
        for path in ("/.well-known/oauth-authorization-server", "/.well-known/oauth-authorization-server/mcp"):
            status, body, headers = client.request("GET", path)
            assert status == 200 and body["issuer"] == f"http://{name}:{server.port}" and "Access-Control-Allow-Origin" not in headers
            assert "client_id_metadata_document_supported" not in body
    for path in ("openid-configuration", "openid-configuration/mcp"):
        assert Client(server.url, register=False).request("GET", "/.well-known/" + path)[0] == 404


# --- codes ---

def test_a_code_ends(server, ada, oauth):
    code = oauth.consent(ada)["code"]
    with database(server) as db:
        db.execute("UPDATE codes SET expires_at = expires_at - 121000 WHERE used_at IS NULL")
    db.close()
    status, body, _ = oauth.redeem(code)
    assert status == 400 and body["error"] == "invalid_grant"


def test_a_code_used_twice_ends_what_it_gave(server, ada, oauth):
    code = oauth.consent(ada)["code"]
    pair = oauth.redeem(code)[1]
    assert oauth.use(pair["access_token"]) == 200
    assert oauth.redeem(code)[1]["error"] == "invalid_grant"
    assert oauth.use(pair["access_token"]) == 401
    assert oauth.refresh(pair["refresh_token"])[1]["error"] == "invalid_grant"


@pytest.mark.parametrize("change,error", [({"code_verifier": "x" * 50}, "invalid_grant"), ({"code_verifier": "short"}, "invalid_grant"),
                                          ({"redirect_uri": "http://127.0.0.1:1112/callback"}, "invalid_grant"),
                                          ({"redirect_uri": None}, "invalid_grant"), ({"resource": "https://other.example/mcp"}, "invalid_target"),
                                          ({"code_verifier": None}, "invalid_request"), ({"client_id": "psd_nobody"}, "invalid_client")])
def test_wrong_exchanges(ada, oauth, change, error):
    status, body, _ = oauth.redeem(oauth.consent(ada)["code"], **change)
    assert (401 if error == "invalid_client" else 400) == status and body["error"] == error


def test_another_client_cannot_use_the_code(server, ada, oauth):
    other = Client(server.url)
    code = oauth.consent(ada)["code"]
    other.verifier = oauth.verifier
    assert other.redeem(code)[1]["error"] == "invalid_grant"


@pytest.mark.parametrize("resource", [None, "with a slash"])
def test_resource_may_be_left_out_or_end_in_a_slash(ada, oauth, resource):
    value = oauth.resource + "/" if resource else None
    code = oauth.consent(ada, resource=value)["code"]
    pair = oauth.redeem(code, resource=value)[1]
    assert oauth.use(pair["access_token"]) == 200


@pytest.mark.parametrize("scope,good", [("", True), (None, True), ("sandbox offline_access", True), ("mcp", False)])
def test_scopes(server, ada, oauth, scope, good):
    if good:
        assert oauth.redeem(oauth.consent(ada, scope=scope)["code"])[1]["scope"] == "sandbox"
    else:
        page = ada.get(oauth.authorize_url(scope=scope))
        assert "error=invalid_scope" in page.location and "iss=" in page.location


def test_loopback_redirects_any_port_and_name(server, ada, oauth):
    for uri in ("http://127.0.0.1:2222/callback", "http://localhost:3333/callback", "http://[::1]:4/callback"):
        code = oauth.consent(ada, redirect_uri=uri)["code"]
        assert oauth.redeem(code)[1]["error"] == "invalid_grant", "the exchange names the very same address"
        code = oauth.consent(ada, redirect_uri=uri)["code"]
        assert oauth.redeem(code, redirect_uri=uri)[0] == 200


def test_parameters_twice(server, oauth):
    page = Browser(server.url).get(oauth.authorize_url() + "&state=again")
    assert page.status == 303 and "error=invalid_request" in page.location
    page = Browser(server.url).get(oauth.authorize_url() + "&redirect_uri=http://127.0.0.1:1111/callback")
    assert page.status == 400 and not page.location
    body = "grant_type=refresh_token&grant_type=refresh_token&client_id=" + oauth.id
    status, answer, _ = oauth.request("POST", "/token", body, {"Content-Type": "application/x-www-form-urlencoded"})
    assert status == 400 and answer["error"] == "invalid_request"


# --- refresh ---

def test_rotation_and_its_grace(server, ada, oauth):
    """The probe's reuse check, with the 60 s in which a lost answer may be asked for again."""
    first = oauth.sign_in(ada)
    second = oauth.refresh(first["refresh_token"])[1]
    assert second["refresh_token"] != first["refresh_token"] and oauth.use(second["access_token"]) == 200
    again = oauth.refresh(first["refresh_token"])[1]
    assert again["refresh_token"] == second["refresh_token"] and again["access_token"] == second["access_token"]
    assert oauth.refresh(second["refresh_token"], client_id=Client(server.url).id)[1]["error"] == "invalid_grant"
    third = oauth.refresh(second["refresh_token"])[1]
    assert oauth.refresh(first["refresh_token"])[1]["refresh_token"] == third["refresh_token"], "the last of the chain"
    with database(server) as db:
        db.execute("UPDATE tokens SET rotated_at = rotated_at - 61000 WHERE rotated_at IS NOT NULL")
    db.close()
    status, body, _ = oauth.refresh(first["refresh_token"])
    assert status == 400 and body["error"] == "invalid_grant"
    assert oauth.refresh(third["refresh_token"])[1]["error"] == "invalid_grant", "the family has ended"
    assert oauth.use(third["access_token"]) == 401


def test_five_at_once_fifty_times(server, ada, oauth):
    pair = oauth.sign_in(ada)
    for _ in range(50):
        answers = []
        threads = [threading.Thread(target=lambda token=pair["refresh_token"]: answers.append(oauth.refresh(token))) for _ in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [status for status, _, _ in answers] == [200] * 5, answers
        assert len({body["refresh_token"] for _, body, _ in answers}) == 1
        pair = answers[0][1]
        assert all(oauth.use(body["access_token"]) == 200 for _, body, _ in answers[:1])
    assert oauth.use(pair["access_token"]) == 200


def test_expired_tokens(server, ada, oauth):
    pair = oauth.sign_in(ada)
    with database(server) as db:
        db.execute("UPDATE tokens SET expires_at = expires_at - 3600001 WHERE kind = 0")
    db.close()
    status, _, headers = oauth.request("GET", "/v1/boxes", headers={"Authorization": f"Bearer {pair['access_token']}"})
    assert status == 401 and 'error="invalid_token"' in headers["WWW-Authenticate"]
    pair = oauth.refresh(pair["refresh_token"])[1]
    assert oauth.use(pair["access_token"]) == 200


def test_a_token_without_the_scope(server, ada, oauth):
    pair = oauth.sign_in(ada)
    with database(server) as db:
        db.execute("UPDATE grants SET scope = 'other' WHERE client_id = ?", (oauth.id,))
    db.close()
    for method, path in (("POST", "/mcp"), ("GET", "/mcp"), ("DELETE", "/mcp"), ("GET", "/v1/boxes")):
        status, body, headers = oauth.request(method, path, headers={"Authorization": f"Bearer {pair['access_token']}"})
        assert status == 403 and body["code"] == "insufficient_scope"
        challenge = headers["WWW-Authenticate"]
        assert challenge.startswith("Bearer ") and 'error="insufficient_scope"' in challenge and 'scope="sandbox"' in challenge
        assert "resource_metadata=" in challenge


def test_everything_survives_a_restart(new_server):
    instance = new_server()
    ada = people(instance)
    oauth = Client(instance.url)
    pair = oauth.sign_in(ada)
    code = oauth.consent(ada)["code"]
    page = ada.get(oauth.authorize_url())
    rotated = oauth.refresh(pair["refresh_token"])[1]
    instance.kill()
    instance.start()
    assert oauth.use(pair["access_token"]) == 200 and oauth.use(rotated["access_token"]) == 200
    assert oauth.refresh(pair["refresh_token"])[1] == {**rotated, "expires_in": oauth.refresh(pair["refresh_token"])[1]["expires_in"]}
    assert ada.submit(page, action="/authorize", button=("decision", "allow")).status == 303, "a page that was open goes on"
    assert ada.get("/settings").status == 200
    assert code


# --- ends ---

def test_revocation(server, ada, oauth):
    other = Client(server.url)
    pair = oauth.sign_in(ada)
    assert other.post_form("/revoke", {"token": pair["refresh_token"], "client_id": other.id})[0] == 200
    assert oauth.use(pair["access_token"]) == 200, "another client's token is not revoked"
    assert oauth.post_form("/revoke", {"token": "unknown", "client_id": oauth.id})[0] == 200
    assert oauth.post_form("/revoke", {"client_id": oauth.id})[1]["error"] == "invalid_request"
    assert oauth.post_form("/revoke", {"token": pair["access_token"], "client_id": oauth.id})[0] == 200
    assert oauth.use(pair["access_token"]) == 401
    pair = oauth.refresh(pair["refresh_token"])[1]
    assert oauth.post_form("/revoke", {"token": pair["refresh_token"], "client_id": oauth.id, "token_type_hint": "access_token"})[0] == 200
    assert oauth.use(pair["access_token"]) == 401
    assert oauth.refresh(pair["refresh_token"])[1]["error"] == "invalid_grant"


def test_grants_over_rest_and_on_the_page(server, ada):
    oauth = Client(server.url, name="A client <b>&\"")
    pair = oauth.sign_in(ada)
    key = {"Authorization": f"Bearer {server.key()}"}
    grants = [g for g in oauth.request("GET", "/v1/grants", headers=key)[1]["grants"] if g["clientId"] == oauth.id]
    assert len(grants) == 1 and grants[0]["redirectHost"] == "127.0.0.1:1111" and grants[0]["clientName"] == "A client <b>&\""
    page = ada.get("/settings")
    assert "A client &lt;b&gt;&amp;&quot;" in page.body and "<b>&" not in page.body
    assert oauth.request("DELETE", "/v1/grants/" + grants[0]["id"], headers=key)[0] == 204
    assert oauth.request("DELETE", "/v1/grants/" + grants[0]["id"], headers=key)[0] == 404
    assert oauth.use(pair["access_token"]) == 401
    pair = oauth.sign_in(ada)
    grant = next(g["id"] for g in oauth.request("GET", "/v1/grants", headers=key)[1]["grants"] if g["clientId"] == oauth.id)
    page = ada.get("/settings")
    form = next(f for f in page.forms if f["action"].startswith("/settings/grants/revoke") and f["fields"]["id"] == grant)
    assert ada.post(form["action"], form["fields"]).status == 200
    assert oauth.use(pair["access_token"]) == 401


def test_a_client_cannot_make_itself_a_key(server, ada, oauth):
    pair = oauth.sign_in(ada)
    status, body, _ = oauth.post_json("/v1/keys", {"name": "mine"}, {"Authorization": f"Bearer {pair['access_token']}"})
    assert status == 403 and body["code"] == "person_required"


def test_unknown_client(server, oauth):
    oauth.id = "psd_was-forgotten"
    page = Browser(server.url).get(oauth.authorize_url())
    assert page.status == 400 and not page.location
    status, body, _ = oauth.refresh("psr_x")
    assert status == 401 and body["error"] == "invalid_client"


# --- the consent page defends itself ---

def test_consent_needs_its_token_its_browser_and_its_origin(server, ada, oauth):
    url = oauth.authorize_url()
    page = ada.get(url)
    fields = {**page.form("/authorize")["fields"], "decision": "allow"}
    stranger = Browser(server.url)
    stranger.get("/sign-in")

    def refused(browser, values, **headers):
        answer = browser.post("/authorize", values, headers=headers, follow=False)
        return not (answer.location or "").startswith(oauth.redirect)

    assert refused(ada, {**fields, "csrf": ""})
    assert refused(ada, {**fields, "csrf": fields["csrf"][:-2] + "AA"})
    assert refused(ada, fields, Origin="http://evil.example")
    assert refused(ada, fields, Origin="null")
    assert refused(ada, fields, Origin=f"http://localhost:{server.port}")
    assert refused(stranger, fields), "another browser's form"
    assert ada.post("/authorize", fields, follow=False).location.startswith(oauth.redirect)
    assert refused(ada, fields), "the same form twice"
    sign_in = ada.get("/settings").form()["fields"]["csrf"]
    page = ada.get(oauth.authorize_url())
    assert refused(ada, {**page.form("/authorize")["fields"], "decision": "allow", "csrf": sign_in}), "a token of another form"


def test_consent_cannot_be_framed_or_cached(server, oauth):
    page = Browser(server.url).get(oauth.authorize_url())
    policy = page.headers["Content-Security-Policy"]
    assert "frame-ancestors 'none'" in policy and "default-src 'none'" in policy and "unsafe" not in policy and "form-action" not in policy
    assert page.headers["X-Frame-Options"] == "DENY" and page.headers["Cache-Control"] == "no-store"
    assert page.headers["Referrer-Policy"] == "same-origin" and page.headers["X-Content-Type-Options"] == "nosniff"


CORPUS = ['<script>alert(1)</script>', '"><img src=x onerror=alert(1)>', "'><svg/onload=alert(1)>", '{{me}}', '{{#people}}x{{/people}}', '</title><script>',
          'a\u202egnp.exe', '\u2066x', '&lt;script&gt;', 'javascript:alert(1)', '`${1}`', 'x' * 500, '\x00\x1b[31m', '<!--', ']]>', '\u2028', '😀' * 60]


@pytest.mark.parametrize("name", CORPUS, ids=range(len(CORPUS)))
def test_names_stay_text(server, ada, name):
    oauth = Client(server.url, name=name, register=False)
    status, body, _ = oauth.post_json("/register", {"client_name": name, "redirect_uris": [oauth.redirect]})
    if "\x00" in name and status == 400:
        return
    assert status == 201
    oauth.id = body["client_id"]
    plain = Client(server.url, name="plain")
    page, other = ada.get(oauth.authorize_url()), ada.get(plain.authorize_url())
    # The same tags, whatever the name: nothing of it became one.
    assert [p.count("<") for p in (page.body,)] == [other.body.count("<")]
    assert "\u202e" not in page.body and "\u2066" not in page.body and "\x1b" not in page.body


# --- registration ---

@pytest.mark.parametrize("uris", [["http://example.com/cb"], ["javascript:alert(1)"], ["https://a.example/cb#f"], ["http://127.0.0.1@evil.example/"],
                                  ["http://localhost.evil.example/"], [], "http://127.0.0.1/", [1], ["//x"], ["http://127.0.0.1/\\evil"],
                                  ["https://a.example/" + "x" * 2000], ["http://127.0.0.1/"] * 11])
def test_registrations_that_are_refused(server, uris):
    status, body, headers = Client(server.url, register=False).post_json("/register", {"redirect_uris": uris})
    assert status == 400 and body["error"] == "invalid_redirect_uri" and body["error_description"]
    assert "no-store" in headers["Cache-Control"]


def test_registration_that_cannot_be_a_public_client(server):
    status, body, _ = Client(server.url, register=False).post_json("/register", {"redirect_uris": ["https://a.example/"],
                                                                                "token_endpoint_auth_method": "private_key_jwt"})
    assert status == 400 and body["error"] == "invalid_client_metadata"


def test_registration_is_limited(new_server):
    client = Client(new_server().url, register=False)
    statuses = [client.post_json("/register", {"redirect_uris": [client.redirect]})[0] for _ in range(230)]
    assert statuses[:100] == [201] * 100 and 429 in statuses
    status, body, headers = client.post_json("/register", {"redirect_uris": [client.redirect]})
    assert status in (201, 429) and (status == 201 or int(headers["Retry-After"]) >= 1), body


def test_no_document_is_fetched_by_default(server, oauth):
    oauth.id = "https://client.example/metadata.json"
    page = Browser(server.url).get(oauth.authorize_url())
    assert page.status == 400 and not page.location


def test_documents_when_they_are_switched_on(new_server):
    instance = new_server(arguments=["--allow-client-metadata"])
    client = Client(instance.url)
    assert client.request("GET", "/.well-known/oauth-authorization-server")[1]["client_id_metadata_document_supported"] is True
    # Whatever is asked for on this machine or beside it is not fetched: nothing here listens on port 443 either way.
    for host in ("localhost", "127.0.0.1", "host.invalid"):
        client.id = f"https://{host}/metadata.json"
        page = Browser(instance.url).get(client.authorize_url())
        assert page.status == 400 and not page.location
    client = Client(instance.url)
    assert client.sign_in(people(instance))["scope"] == "sandbox"


# --- nothing secret lies about ---

def test_no_secret_in_log_or_database(new_server):
    instance = new_server(log_level="debug")
    ada = people(instance)
    oauth = Client(instance.url)
    code = oauth.consent(ada)["code"]
    pair = oauth.redeem(code)[1]
    more = oauth.refresh(pair["refresh_token"])[1]
    wrong = oauth.redeem(code)[1], oauth.refresh(pair["refresh_token"])[1]
    invite = instance.command("users", "invite", "grace").strip().rsplit("/", 1)[1]
    secret = [PASSWORD, code, pair["access_token"], pair["refresh_token"], more["access_token"], more["refresh_token"], oauth.verifier,
              ada.cookie("session"), ada.cookie("browser"), invite]
    instance.stop()
    empty_disks = instance.state / "boxhost" / "pool"  # nobody used them, and they go while we look
    places = [instance.log, *(p for p in instance.state.rglob("*") if empty_disks not in p.parents and p.is_file())]
    for place in places:
        data = place.read_bytes()
        for value in secret:
            assert value.encode() not in data, f"{value[:8]}… is in {place.name}"
            assert urllib.parse.quote(value).encode() not in data
    assert not any(value in str(wrong) for value in secret)
