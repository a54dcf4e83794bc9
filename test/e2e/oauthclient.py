"""A public OAuth client (authorization code, PKCE S256) that a test drives step by step."""

import base64
import hashlib
import http.client
import json
import secrets
import urllib.parse

from browser import Browser

PASSWORD = "correct horse battery staple"


def people(instance, login="ada", password=PASSWORD):
    """A browser that is signed in as the first person, who is made when there is none."""
    browser = Browser(instance.url)
    link = instance.command("users", "invite", "--first").strip()
    if link:
        browser.join(link, login, password)
    else:
        page = browser.sign_in(login, password)
        assert page.status == 200 and browser.cookie("session"), page.body
    return browser


class Client:
    redirect = "http://127.0.0.1:1111/callback"

    def __init__(self, origin, name="test", register=True, host=None):
        self.origin, self.host = origin, host
        self.resource = origin + "/mcp"
        parts = urllib.parse.urlsplit(origin)
        self._address = parts.hostname, parts.port
        if register:
            status, body = self.post_json("/register", {"client_name": name, "redirect_uris": [self.redirect]})[:2]
            assert status == 201, body
            self.id = body["client_id"]

    # --- wire ---
    def request(self, method, path, body=None, headers=None):
        connection = http.client.HTTPConnection(*self._address, timeout=60)
        try:
            connection.request(method, path, body=body, headers={**({"Host": self.host} if self.host else {}), **(headers or {})})
            answer = connection.getresponse()
            data = answer.read()
        finally:
            connection.close()
        try:
            parsed = json.loads(data)
        except ValueError:
            parsed = data.decode("utf-8", "replace")
        return answer.status, parsed, answer.headers

    def post_json(self, path, value, headers=None):
        return self.request("POST", path, json.dumps(value), {"Content-Type": "application/json", **(headers or {})})

    def post_form(self, path, fields, headers=None):
        return self.request("POST", path, urllib.parse.urlencode({k: v for k, v in fields.items() if v is not None}),
                            {"Content-Type": "application/x-www-form-urlencoded", **(headers or {})})

    # --- steps ---
    def authorize_url(self, **change):
        self.verifier = secrets.token_urlsafe(48)
        challenge = base64.urlsafe_b64encode(hashlib.sha256(self.verifier.encode()).digest()).rstrip(b"=").decode()
        fields = {"response_type": "code", "client_id": self.id, "redirect_uri": self.redirect, "state": "a state", "scope": "sandbox",
                  "code_challenge": challenge, "code_challenge_method": "S256", "resource": self.resource, **change}
        return self.origin + "/authorize?" + urllib.parse.urlencode({k: v for k, v in fields.items() if v is not None})

    def consent(self, browser, decision="allow", fields=None, **change):
        """The parameters that came back."""
        page = browser.get(self.authorize_url(**change))
        assert page.status == 200, page.body
        page = browser.submit(page, fields, action="/authorize", button=("decision", decision))
        assert page.status == 303, (page.status, page.body)
        query = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(page.location).query))
        assert query["iss"] == self.origin and query["state"] == "a state", query
        return query

    def token(self, **fields):
        return self.post_form("/token", {"client_id": self.id, **fields})

    def redeem(self, code, **change):
        return self.token(**{"grant_type": "authorization_code", "code": code, "code_verifier": self.verifier, "redirect_uri": self.redirect,
                             "resource": self.resource, **change})

    def refresh(self, token, **change):
        return self.token(**{"grant_type": "refresh_token", "refresh_token": token, "resource": self.resource, **change})

    def sign_in(self, browser):
        """A pair of tokens."""
        status, body, _ = self.redeem(self.consent(browser)["code"])
        assert status == 200, body
        return body

    def use(self, token, path="/mcp"):
        """The status that a token earns."""
        headers = {"Authorization": f"Bearer {token}", "Accept": "application/json, text/event-stream"}
        if path != "/mcp":
            return self.request("GET", path, headers=headers)[0]
        message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-11-25", "capabilities": {},
                                                                                "clientInfo": {"name": "test", "version": "1"}}}
        return self.post_json("/mcp", message, headers)[0]
