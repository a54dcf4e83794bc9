"""A small browser without scripts: cookies, redirects on one server, and forms that are filled in and sent."""

import html
import http.client
import re
import urllib.parse
from html.parser import HTMLParser


class _Forms(HTMLParser):
    def __init__(self):
        super().__init__()
        self.forms, self._in = [], None

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        if tag == "form":
            self._in = {"action": attrs.get("action", ""), "method": attrs.get("method", "get"), "fields": {}, "buttons": []}
            self.forms.append(self._in)
        elif self._in is not None and tag == "input" and attrs.get("name"):
            self._in["fields"][attrs["name"]] = attrs.get("value", "")
        elif self._in is not None and tag == "button":
            self._in["buttons"].append((attrs.get("name"), attrs.get("value", "")))

    def handle_endtag(self, tag):
        if tag == "form":
            self._in = None


class Page:
    def __init__(self, status, headers, body, url):
        self.status, self.headers, self.body, self.url = status, headers, body, url
        self.location = headers.get("Location")
        parser = _Forms()
        parser.feed(body)
        self.forms = parser.forms

    @property
    def heading(self):
        found = re.search(r"<h1>(.*?)</h1>", self.body, re.S)
        return html.unescape(re.sub("<[^>]*>", "", found.group(1))).strip() if found else ""

    def form(self, action=None):
        for form in self.forms:
            if action is None or form["action"] == action:
                return form
        raise AssertionError(f"no form {action!r} on {self.url} ({self.status}):\n{self.body[:2000]}")


class Browser:
    def __init__(self, origin):
        self.origin = origin.rstrip("/")
        self.cookies = {}

    def cookie(self, name):
        """The value of a cookie of the server's, or None."""
        return self.cookies.get(f"psbx_{urllib.parse.urlsplit(self.origin).port}_{name}")

    def request(self, method, url, body=None, headers=None, follow=True):
        """Follows redirects on this server; one that leads elsewhere is returned as it is."""
        url = urllib.parse.urljoin(self.origin + "/", url)
        sent = {"Accept-Language": "en", **(headers or {})}
        if self.cookies:
            sent["Cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        parts = urllib.parse.urlsplit(url)
        connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=60)
        try:
            target = (parts.path or "/") + ("?" + parts.query if parts.query else "")
            connection.request(method, target, body=body, headers=sent)
            answer = connection.getresponse()
            text = answer.read().decode("utf-8", "replace")
        finally:
            connection.close()
        for cookie in answer.headers.get_all("Set-Cookie") or []:
            name, _, rest = cookie.partition("=")
            value = rest.split(";")[0]
            if "Max-Age=0" in cookie:
                self.cookies.pop(name, None)
            else:
                self.cookies[name] = value
        page = Page(answer.status, answer.headers, text, url)
        if follow and page.status in (301, 302, 303, 307, 308):
            to = urllib.parse.urljoin(url, page.location)
            if to.startswith(self.origin + "/"):
                return self.request("GET", to, headers=headers)
        return page

    def get(self, url, **more):
        return self.request("GET", url, **more)

    def post(self, url, fields, headers=None, **more):
        return self.request("POST", url, urllib.parse.urlencode(fields),
                            {"Content-Type": "application/x-www-form-urlencoded", "Origin": self.origin,
                             "Sec-Fetch-Site": "same-origin", **(headers or {})}, **more)

    def submit(self, page, fields=None, action=None, button=None, **more):
        form = page.form(action)
        values = {**form["fields"], **(fields or {})}
        if button:
            values[button[0]] = button[1]
        return self.post(urllib.parse.urljoin(page.url, form["action"]), values, **more)

    # --- what people do ---
    def join(self, link, login, password, name=""):
        page = self.get(link)
        assert page.status == 200, page.body
        page = self.submit(page, {"login": login, "password": password, "name": name})
        assert page.status == 200 and self.cookie("session"), (page.status, page.body)
        return page

    def sign_in(self, login, password):
        return self.submit(self.get("/sign-in"), {"login": login, "password": password}, action="/sign-in")
