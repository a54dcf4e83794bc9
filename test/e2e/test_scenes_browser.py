"""Scenes in a real browser: what is down, cookies, and stock dev servers, untouched, in boxes."""

import json
import os
import shutil
import socket
import subprocess
import threading
from pathlib import Path

import pytest
from oauthclient import people
from sceneclient import Box, PortScene, Scene, free_range, put

HERE = Path(__file__).resolve().parent


@pytest.fixture(scope="module")
def chromium_path():
    path = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    if not path:
        pytest.skip("Chromium is not installed here (package chromium)")
    return path


class Driven:
    def __init__(self, peers, path, folder):
        script = peers.driver("browser", "scenes.mjs", folder)
        self.process = subprocess.Popen([peers.node, script], env=peers.env(HOME=str(folder), CHROMIUM=path), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __call__(self, do, **arguments):
        watchdog = threading.Timer(180, self.process.kill)
        watchdog.start()
        self.process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        watchdog.cancel()
        answer = json.loads(line) if line else {"ok": False, "error": "the browser ended"}
        assert answer["ok"], answer
        return answer

    def value(self, do, **arguments):
        return self(do, **arguments)["value"]

    def close(self):
        self.process.stdin.close()
        self.process.wait(30)


@pytest.fixture
def browser(peers, chromium_path, tmp_path):
    driven = Driven(peers, chromium_path, tmp_path)
    yield driven
    try:
        driven.close()
    except subprocess.TimeoutExpired:
        driven.process.kill()


def run(box, name, cmd):
    """Starts a service of the box and waits until it listens."""
    port = box.target(name)
    answer = box.client.exec(box.id, cmd, background=True)
    assert not answer.is_error, answer.text
    ready = box.client.tool("sandbox_procs", {"id": box.id, "action": "wait", "bgId": answer.data["bgId"], "until": "ready", "readyPort": port}, timeout=300)
    assert ready.data.get("ready"), ready.text
    return answer.data["bgId"]


def edit(box, path, before, after):
    done = box.client.exec(box.id, f"sed -i 's/{before}/{after}/' {path} && grep -q '{after}' {path}")
    assert done.data["exitCode"] == 0, done.text


def node_in(peers, box):
    """The Node that the peers are run with, in the box as well."""
    put(box.client, box.id, "node", ("node", Path(peers.node).resolve()))
    return "/work/node/node"


# ---------------------------------------------------------------- the page that says what is wrong
def test_down_then_up(server, browser):
    client = server.client()
    box = Box(server, client, [{"name": "web", "port": 8000, "web": True}], run=False)
    browser("open", url=box.data["webUrl"] + "deep/link?x=1")
    browser("wait", selector="h1", text="Nothing answers here yet")
    assert "port 8000" in browser.value("text", selector="main") and box.id in browser.value("text", selector="main")
    box.serve("web")
    browser("wait", selector="h1", text=f"web-{box.id}")  # by itself
    assert browser.value("eval", js="location.pathname + location.search") == "/deep/link?x=1"
    client.stop(box.id)


def test_the_page_in_every_dress(server, browser, tmp_path):
    client = server.client()
    box = Box(server, client, [{"name": "web", "port": 8000, "web": True}], run=False)
    gone = box.data["webUrl"].replace("--" + box.id, "--nosuchbox1")
    n = 0
    for language, words in (("en", "Nothing answers here yet"), ("ja", "まだ応答がありません"), ("zh-TW", "目前還沒有回應")):
        for scheme in ("light", "dark"):
            for size in ((390, 844), (1280, 800)):
                for url in (box.data["webUrl"], gone):
                    n += 1
                    options = {"locale": language, "colorScheme": scheme, "viewport": {"width": size[0], "height": size[1]}, "bypassCSP": True}
                    browser("open", url=url, page=f"p{n}", options=options)
                    browser("wait", selector="h1", text=words if url != gone else None, page=f"p{n}") if url != gone else None
                    found = browser("look", page=f"p{n}")
                    assert not found["problems"], (language, scheme, size, url, found)
                    dark = browser.value("eval", js="getComputedStyle(document.body).backgroundColor", page=f"p{n}")
                    assert (dark == "rgb(15, 18, 24)") == (scheme == "dark"), dark
    client.stop(box.id)


# ---------------------------------------------------------------- origins
def test_cookies_and_the_app(server, browser):
    """Two boxes and the app in one browser: nobody sees the cookies of another, and no scene acts on the app."""
    client = server.client()
    services = [{"name": "web", "port": 8000, "web": True}]
    a, b = Box(server, client, services), Box(server, client, services)
    people(server)
    app = server.url.replace("127.0.0.1", "localhost")
    browser("open", url=app + "/sign-in")
    browser("fill", selector="input[name=login]", text="ada")
    from oauthclient import PASSWORD
    browser("fill", selector="input[name=password]", text=PASSWORD)
    browser("click", selector="button.primary")
    browser("wait", selector="form[action='/sign-out'], a[href='/settings']")
    session = [c for c in browser.value("cookies") if c["name"].endswith("_session")]
    assert session
    for box in (a, b):
        browser("tab", of="main", page=box.id, url=box.data["webUrl"] + "cookie/" + box.id)
    for box in (a, b):
        browser("tab", of="main", page=box.id + "2", url=box.data["webUrl"] + "head")
        seen = json.loads(browser.value("text", selector="body", page=box.id + "2"))
        assert [v for k, v in seen["fields"] if k == "cookie"] == [f"who={box.id}"]
        assert session[0]["value"] not in json.dumps(seen)
    probe = ("async url => { try { const r = await fetch(url, {credentials: 'include'}); return r.status + ' ' + (await r.text()).slice(0, 50); } "
             "catch (e) { return 'refused'; } }")
    for url in (app + "/v1/session", app + "/mcp", server.url + "/v1/boxes", b.data["webUrl"] + "head"):
        assert browser.value("eval", page=a.id, js=f"({probe})({json.dumps(url)})") == "refused", url
    # A form can be sent anywhere: the app does not take it.
    browser("eval", page=a.id, js=f"""(() => {{ const f = document.createElement('form'); f.method = 'post'; f.action = {json.dumps(app + '/sign-out')};
        document.body.append(f); f.submit(); }})()""")
    browser("tab", of="main", page="still", url=app + "/settings")
    assert browser.value("eval", page="still", js="location.pathname") == "/settings"
    # Nor is the key told to other sites.
    browser("tab", of="main", page="from", url=a.data["webUrl"])
    browser("eval", page="from", js=f"location.href = {json.dumps(b.data['webUrl'] + 'head')}")
    browser("wait", selector="body", text='"name"', page="from")
    seen = json.loads(browser.value("text", selector="body", page="from"))
    assert a.id not in json.dumps(seen)
    for box in (a, b):
        client.stop(box.id)


def own_address():
    """This machine's as others know it, or loopback where it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        try:
            s.connect(("192.0.2.1", 9))  # sends nothing
            return s.getsockname()[0]
        except OSError:
            return "127.0.0.1"


def test_scenes_with_ports(new_server, peers, browser):
    """Services that differ by their port alone: opened by the whole address, cookies apart, live modules over the WebSocket; and no page uses what the
    browser holds for another. By an address of this machine that is not loopback, as from a phone: there browsers tell less of who asks."""
    first, last = free_range(8)
    address = own_address()
    server = new_server(arguments=["--listen", "0.0.0.0:0", "--host", address, "--scene-ports", f"{first}-{last}"])
    client = server.client()
    a, b = (Box(server, client, [{"name": "web", "port": 8000, "web": True}, {"name": "vite", "port": 5173}], scene=PortScene, run=["web"]) for _ in range(2))
    put(client, a.id, "app", *VITE.items(), ("node_modules", peers.modules("vite")))
    run(a, "vite", f"cd app && exec {node_in(peers, a)} node_modules/vite/bin/vite.js")
    people(server)
    app = f"http://{address}:{server.port}"
    browser("open", url=app + "/sign-in")
    browser("fill", selector="input[name=login]", text="ada")
    from oauthclient import PASSWORD
    browser("fill", selector="input[name=password]", text=PASSWORD)
    browser("click", selector="button.primary")
    browser("wait", selector="form[action='/sign-out'], a[href='/settings']")
    session = next(c for c in browser.value("cookies") if c["name"].endswith("_session"))
    origin = {box: box.scenes["web"].origin for box in (a, b)}
    # Without the address there is nothing, also for who is signed in.
    browser("tab", of="main", page="shut", url=origin[b] + "/head")
    assert "nothing to see" in browser.value("text", selector="body", page="shut")
    for box in (a, b):
        browser("tab", of="main", page=box.id, url=box.data["webUrl"] + "cookie/" + box.id)
        assert browser.value("eval", page=box.id, js="location.href") == f"{origin[box]}/cookie/{box.id}"  # the key is gone
        assert browser.value("eval", page=box.id, js="document.cookie") == ""  # no script sees what another port's page set
    for box in (a, b):
        browser("tab", of="main", page=box.id, url=origin[box] + "/head")
        seen = json.loads(browser.value("text", selector="body", page=box.id))
        assert [v for k, v in seen["fields"] if k == "cookie"] == [f"who={box.id}"]
        assert session["value"] not in json.dumps(seen) and "psbx" not in json.dumps(seen["fields"])
    probe = ("async (url, mode) => { try { const r = await fetch(url, {credentials: 'include', mode}); return r.status + ' ' + (await r.text()).slice(0, 50); } "
             "catch (e) { return 'refused'; } }")
    for url in (app + "/v1/session", app + "/v1/boxes", app + "/mcp", origin[b] + "/head"):
        assert browser.value("eval", page=a.id, js=f"({probe})({json.dumps(url)}, 'cors')") == "refused", url
    browser("eval", page=a.id, js=f"({probe})({json.dumps(origin[b] + '/tell/forged')}, 'no-cors')")
    browser("eval", page=a.id, js=f"""new Promise(done => {{ const s = document.createElement('script'); s.src = {json.dumps(origin[b] + '/tell/script')};
        s.onload = s.onerror = done; document.body.append(s); }}).then(() => 1)""")
    socket_to = "new Promise(done => { const w = new WebSocket(%s); w.onopen = () => done('open'); w.onerror = () => done('refused'); })"
    there = json.dumps(origin[b].replace("http", "ws") + "/ws")
    assert browser.value("eval", page=a.id, js=socket_to % there) == "refused"
    assert browser.value("eval", page=b.id, js=socket_to % there) == "open"
    told = browser.value("eval", page=b.id, js="fetch('/told').then(r => r.text())")
    assert "forged" not in told and "script" not in told
    browser("eval", page=a.id, js=f"""(() => {{ const f = document.createElement('form'); f.method = 'post'; f.action = {json.dumps(app + '/sign-out')};
        document.body.append(f); f.submit(); }})()""")
    browser("tab", of="main", page="still", url=app + "/settings")
    assert browser.value("eval", page="still", js="location.pathname") == "/settings"
    # A stock dev server at a port.
    browser("tab", of="main", page="vite", url=a.data["services"][1]["url"])
    browser("wait", selector="#says", text="first words", page="vite")
    browser("eval", js="window.unreloaded = true", page="vite")
    edit(a, "app/says.js", "first words", "second words")
    browser("wait", selector="#says", text="second words", page="vite")
    assert browser.value("eval", js="window.unreloaded", page="vite") is True
    # The page that waits for a service gives way by itself here as well.
    down = Box(server, client, [{"name": "web", "port": 8000}], scene=PortScene, run=False)
    browser("tab", of="main", page="down", url=down.data["sceneUrl"] + "deep/link?x=1")
    browser("wait", selector="h1", text="Nothing answers here yet", page="down")
    down.serve("web")
    browser("wait", selector="h1", text=f"web-{down.id}", page="down")
    assert browser.value("eval", page="down", js="location.pathname + location.search") == "/deep/link?x=1"


CACHED = ("import http.server, sys\nclass H(http.server.BaseHTTPRequestHandler):\n def do_GET(self):\n  body = b'<h1>' + sys.argv[1].encode() + b'</h1>'\n"
          "  self.send_response(200)\n  for h in (('Content-Type', 'text/html'), ('Cache-Control', 'public, max-age=86400, immutable'), ('Content-Length', str(len(body)))):\n"
          "   self.send_header(*h)\n  self.end_headers()\n  self.wfile.write(body)\nhttp.server.HTTPServer(('127.0.0.1', 8000), H).serve_forever()\n")


def test_nothing_cached_passes_on(new_server, browser):
    """Two boxes, one after the other at the same port: the browser may keep what the first one said, and not for the second."""
    first, _ = free_range(1)
    server = new_server(arguments=["--scene-ports", str(first)])
    client = server.client()
    for n, word in enumerate(("one", "two")):
        box = Box(server, client, [{"name": "web", "port": 8000}], scene=PortScene, run=False)
        put(client, box.id, "app", ("app.py", CACHED.encode()))
        run(box, "web", f"exec python3 app/app.py {word}")
        browser("open" if n == 0 else "tab", page=word, url=box.data["webUrl"] + "page", **({} if n == 0 else {"of": "one"}))
        browser("wait", selector="h1", text=word, page=word)
        for _ in range(2):
            client.stop(box.id)


# ---------------------------------------------------------------- dev servers as they come
VITE = {
    "index.html": b'<!doctype html><title>vite</title><link rel="icon" href="data:,"><h1 id="says">nothing</h1><script type="module" src="/main.js"></script>',
    "main.js": b"""import { says } from './says.js';
const show = text => { document.querySelector('#says').textContent = text; };
show(says);
if (import.meta.hot) import.meta.hot.accept('./says.js', changed => show(changed.says));
""",
    "says.js": b"export const says = 'first words';\n",
}


def test_vite(server, peers, browser):
    client = server.client()
    box = Box(server, client, [{"name": "web", "port": 5173, "web": True}], run=False)
    put(client, box.id, "app", *VITE.items(), ("node_modules", peers.modules("vite")))
    run(box, "web", f"cd app && exec {node_in(peers, box)} node_modules/vite/bin/vite.js")
    browser("open", url=box.data["webUrl"])
    browser("wait", selector="#says", text="first words")
    browser("eval", js="window.unreloaded = true")
    edit(box, "app/says.js", "first words", "second words")
    browser("wait", selector="#says", text="second words")
    assert browser.value("eval", js="window.unreloaded") is True  # the module was replaced, the page was not
    edit(box, "app/says.js", "second words", "third words")
    browser("wait", selector="#says", text="third words")
    assert browser.value("eval", js="window.unreloaded") is True
    assert browser.value("errors") == []
    client.stop(box.id)


WEBPACK = {
    "src/index.js": b"""import { says } from './says.js';
const show = text => { document.body.innerHTML = '<h1 id="says"></h1>'; document.querySelector('#says').textContent = text; };
show(says);
if (module.hot) module.hot.accept('./says.js', () => show(says));
""",
    "src/says.js": b"export const says = 'first words';\n",
    "public/index.html": b'<!doctype html><title>webpack</title><body><script src="/main.js"></script>',
    "webpack.config.js": b"module.exports = { mode: 'development', entry: './src/index.js', devServer: { static: './public', hot: true } };\n",
}


def test_webpack_dev_server(server, peers, browser):
    """As it comes it takes the scene's host for its own. Its client dials the port that it listens on inside, whatever the page's; the
    setting for any proxy, webSocketURL, makes it take the page's, and modules are replaced (docs/scenes.md)."""
    client = server.client()
    box = Box(server, client, [{"name": "web", "port": 8080, "web": True}, {"name": "hot", "port": 8081}], run=False)
    put(client, box.id, "app", *WEBPACK.items(), ("node_modules", peers.modules("webpack")))
    serve = f"cd app && exec {node_in(peers, box)} node_modules/webpack-cli/bin/cli.js serve --no-open"
    run(box, "web", f"{serve} --port 8080")
    run(box, "hot", f"{serve} --port 8081 --client-web-socket-url auto://0.0.0.0:0/ws")
    hot = box.data["services"][1]["url"]
    browser("open", url=box.data["webUrl"])
    browser("open", url=hot, page="hot")
    for page in ("main", "hot"):
        browser("wait", selector="#says", text="first words", page=page)
    browser("eval", js="window.unreloaded = true", page="hot")
    edit(box, "app/src/says.js", "first words", "second words")
    browser("wait", selector="#says", text="second words", page="hot")
    assert browser.value("eval", js="window.unreloaded", page="hot") is True
    browser("tab", page="again", url=box.data["webUrl"])
    browser("wait", selector="#says", text="second words", page="again")
    client.stop(box.id)


NEXT = {
    "package.json": b'{"name": "app", "private": true}',
    "app/layout.js": b"export default function Layout({ children }) { return <html><body>{children}</body></html>; }\n",
    "app/page.js": b"""import { Form } from './form';
export default function Page() { return <main><h1 id="says">first words</h1><Form /></main>; }
""",
    "app/form.js": b"""'use client';
import { useState } from 'react';
import { double } from './action';
export function Form() {
  const [n, set] = useState(1);
  return <form action={async () => set(await double(n))}><button id="double">double</button><output id="n">{n}</output></form>;
}
""",
    "app/action.js": b"'use server';\nexport async function double(n) { return 2 * n; }\n",
}


def test_next(server, peers, browser):
    client = server.client()
    box = Box(server, client, [{"name": "web", "port": 3000, "web": True}], run=False)
    put(client, box.id, "app", *NEXT.items(), ("node_modules", peers.modules("next")))
    run(box, "web", f"cd app && export NEXT_TELEMETRY_DISABLED=1 PATH=/work/node:$PATH && exec {node_in(peers, box)} node_modules/next/dist/bin/next dev")
    browser("open", url=box.data["webUrl"])
    browser("wait", selector="#says", text="first words")
    for n in (2, 4):
        browser("click", selector="#double")  # a server action: Origin and the forwarded host are compared
        browser("wait", selector="#n", text=str(n))
    browser("eval", js="window.unreloaded = true")
    edit(box, "app/app/page.js", "first words", "second words")
    browser("wait", selector="#says", text="second words")
    assert browser.value("eval", js="window.unreloaded") is True and browser.value("text", selector="#n") == "4"
    client.stop(box.id)


DJANGO = b"""
import sys
from django.conf import settings
from django.core.management import execute_from_command_line
from django.http import HttpResponse, HttpResponseRedirect
from django.middleware.csrf import get_token
from django.urls import path

settings.configure(DEBUG=True, SECRET_KEY='x' * 50, ROOT_URLCONF=__name__, ALLOWED_HOSTS=[],
                   MIDDLEWARE=['django.middleware.common.CommonMiddleware', 'django.middleware.csrf.CsrfViewMiddleware'])

said = []

def index(request):
    if request.method == 'POST':
        said.append(request.POST['word'])
        return HttpResponseRedirect(request.build_absolute_uri('/said/'))
    return HttpResponse(f'<form method=post><input type=hidden name=csrfmiddlewaretoken value="{get_token(request)}">'
                        '<input name=word><button id=go>go</button></form>')

def show(request):
    return HttpResponse(f'<h1 id=said>{" ".join(said)}</h1><p id=host>{request.get_host()}</p>')

urlpatterns = [path('', index), path('said/', show)]
execute_from_command_line([sys.argv[0], 'runserver', '--noreload', '8000'])
"""


def form_round(box, browser):
    """A form with a token is sent, its absolute redirect comes back to the scene."""
    browser("open", url=box.data["webUrl"])
    browser("fill", selector="input[name=word]", text="hello")
    browser("click", selector="#go")
    browser("wait", selector="#said", text="hello")
    assert browser.value("eval", js="location.origin") + "/" == box.data["webUrl"]
    assert browser.value("text", selector="#host") == f"localhost:{box.target('web')}"


def test_django(server, browser):
    if not Path("/usr/lib/python3/dist-packages/django").exists():
        pytest.skip("Django is not installed here (package python3-django)")
    client = server.client()
    box = Box(server, client, [{"name": "web", "port": 8000, "web": True}], run=False)
    put(client, box.id, "app", ("manage.py", DJANGO))
    run(box, "web", "cd app && exec /usr/bin/python3 manage.py")
    form_round(box, browser)
    client.stop(box.id)


RAILS = b"""
require 'rails'
require 'action_controller/railtie'
require 'rack/handler/webrick'

class App < Rails::Application
  config.root = __dir__
  config.eager_load = false
  config.secret_key_base = 'x' * 64
  config.logger = Logger.new($stderr)
  # What `rails new` writes for development: the hosts a development server answers to, and origins of forms are checked.
  config.hosts = ['localhost', '.localhost', IPAddr.new('0.0.0.0/0'), IPAddr.new('::/0')] if config.hosts.empty?
  config.action_controller.forgery_protection_origin_check = true
  routes.append do
    root to: 'words#index'
    post '/' => 'words#create'
    get '/said' => 'words#show'
  end
end

class WordsController < ActionController::Base
  protect_from_forgery with: :exception
  SAID = []

  def index
    render html: %(<form method=post><input type=hidden name=authenticity_token value="#{form_authenticity_token}"><input name=word><button id=go>go</button></form>).html_safe
  end

  def create
    SAID << params[:word]
    redirect_to '/said'
  end

  def show
    render html: %(<h1 id=said>#{SAID.join(' ')}</h1><p id=host>#{request.host_with_port}</p>).html_safe
  end
end

App.initialize!
Rack::Handler::WEBrick.run(App, Host: '127.0.0.1', Port: 3000)
"""


def test_rails(server, browser):
    if not shutil.which("rails") or subprocess.run(["ruby", "-e", "require 'rails'; require 'rack/handler/webrick'"], capture_output=True, check=False).returncode:
        pytest.skip("Rails is not installed here (package ruby-rails)")
    client = server.client()
    box = Box(server, client, [{"name": "web", "port": 3000, "web": True}], run=False)
    put(client, box.id, "app", ("app.rb", RAILS))
    run(box, "web", "cd app && export RAILS_ENV=development && exec ruby app.rb")
    form_round(box, browser)
    client.stop(box.id)
