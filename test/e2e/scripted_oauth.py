"""An authorization server and its resource for the tests of the adapter's sign-in, told by the test what to do wrong."""

import base64
import hashlib
import json
import threading
import urllib.parse
import uuid

from scripted_server import ScriptedServer


class ScriptedOAuth(ScriptedServer):
    """A ScriptedServer that takes only tokens it gave. Everything below `knobs` may be changed at any time."""

    def __init__(self, work):
        super().__init__(work)
        self.key = None
        self.oauth = threading.Lock()
        # knobs
        self.expires_in = 3600
        self.refresh_tokens = True
        self.scopes_supported = None
        self.required_scope = {}     # tool -> scope
        self.challenge_scope = None
        self.iss = "right"           # in the redirect: right, none, or a value
        self.iss_advertised = True
        self.metadata = {}           # replaces members of the metadata; None removes one
        self.prm = {}                # likewise of the protected-resource metadata
        self.prm_hint = True
        self.on_token = None         # function(handler, form) -> True when it has answered
        self.on_authorize = None     # function(handler, query, address to go back to) -> True likewise
        self.registration = {}       # more members of the answer to a registration
        # what was seen
        self.clients, self.codes, self.access, self.refresh = {}, {}, {}, {}
        self.token_requests, self.authorizations, self.registrations = [], [], []
        self.refreshed, self.replayed = 0, 0
        for path in ("/.well-known/oauth-protected-resource/mcp",):
            self.routes[path] = self.do_prm
        self.routes["/.well-known/oauth-authorization-server"] = self.do_metadata
        self.routes["/authorize"] = self.do_authorize
        self.routes["/token"] = self.do_token
        self.routes["/register"] = self.do_register

    def env(self, **more):
        return {"PARALLELSANDBOX_MCP_URL": self.url + "/mcp", **more}

    # --- the resource -------------------------------------------------------------------------------------
    def refusal(self, handler, message=None):
        token = (handler.headers.get("Authorization") or "").removeprefix("Bearer ")
        hint = f'resource_metadata="{self.url}/.well-known/oauth-protected-resource/mcp"' if self.prm_hint else 'realm="x"'
        scope = f', scope="{self.challenge_scope}"' if self.challenge_scope else ""
        with self.oauth:
            granted = self.access.get(token)
        if granted is None:
            return 401, {"error": "sign in", "code": "unauthorized"}, {"WWW-Authenticate": f"Bearer {hint}{scope}"}
        tool = message and message.get("method") == "tools/call" and message["params"]["name"]
        need = tool and self.required_scope.get(tool)
        if need and need not in granted.split():
            return 403, {"error": "more is needed"}, {
                "WWW-Authenticate": f'Bearer error="insufficient_scope", scope="{need}", {hint}'}
        return None

    def do_prm(self, handler, _query):
        self.document(handler, {"resource": self.url + "/mcp", "authorization_servers": [self.url],
                                "scopes_supported": self.scopes_supported}, self.prm)

    @staticmethod
    def document(handler, members, changes):
        members = {**members, **changes}
        handler.answer_json(200, {k: v for k, v in members.items() if v is not None})

    # --- the authorization server -------------------------------------------------------------------------
    def do_metadata(self, handler, _query):
        self.document(handler, {
            "issuer": self.url, "authorization_endpoint": self.url + "/authorize", "token_endpoint": self.url + "/token",
            "registration_endpoint": self.url + "/register", "response_types_supported": ["code"],
            "code_challenge_methods_supported": ["S256"], "token_endpoint_auth_methods_supported": ["none"],
            "authorization_response_iss_parameter_supported": self.iss_advertised or None}, self.metadata)

    def do_register(self, handler, _query):
        asked = json.loads(b"".join(handler.body_pieces()))
        self.registrations.append(asked)
        name = "client-" + uuid.uuid4().hex
        self.clients[name] = asked
        handler.answer_json(201, {**asked, "client_id": name, **self.registration})

    def do_authorize(self, handler, query):
        self.authorizations.append(query)
        code = "code-" + uuid.uuid4().hex
        self.codes[code] = query
        back = {"code": code, "state": query["state"]}
        if self.iss == "right":
            back["iss"] = self.url
        elif self.iss != "none":
            back["iss"] = self.iss
        address = query["redirect_uri"] + "?" + urllib.parse.urlencode(back)
        if self.on_authorize and self.on_authorize(handler, query, address):
            return
        handler.answer(302, "text/plain", b"", {"Location": address})

    def grant(self, scope, client):
        answer = {"access_token": "at-" + uuid.uuid4().hex, "token_type": "Bearer", "scope": scope}
        if self.expires_in is not None:
            answer["expires_in"] = self.expires_in
        self.access[answer["access_token"]] = scope
        if self.refresh_tokens:
            answer["refresh_token"] = "rt-" + uuid.uuid4().hex
            self.refresh[answer["refresh_token"]] = (scope, client)
        return answer

    def do_token(self, handler, _query):
        form = dict(urllib.parse.parse_qsl(b"".join(handler.body_pieces()).decode(), keep_blank_values=True))
        with self.oauth:
            self.token_requests.append({**form, "Authorization": handler.headers.get("Authorization")})
        if self.on_token and self.on_token(handler, form):
            return
        with self.oauth:
            status, answer = self.exchange(form)
        handler.answer_json(status, answer, {"Cache-Control": "no-store"})

    def exchange(self, form):
        if form["grant_type"] == "authorization_code":
            query = self.codes.pop(form["code"], None)
            digest = hashlib.sha256(form["code_verifier"].encode()).digest()
            fits = query and base64.urlsafe_b64encode(digest).decode().rstrip("=") == query["code_challenge"]
            if not fits or query["redirect_uri"] != form["redirect_uri"] or form["resource"] != query["resource"]:
                return 400, {"error": "invalid_grant"}
            return 200, self.grant(query.get("scope", ""), query["client_id"])
        known = self.refresh.pop(form["refresh_token"], None)
        if known is None:
            self.replayed += 1
            return 400, {"error": "invalid_grant"}
        self.refreshed += 1
        return 200, self.grant(*known)

    def end_access(self):
        """Every access token has ended."""
        with self.oauth:
            self.access.clear()
