"""The app in a real browser: every screen, live, hostile text, without a network, and how it is served."""

import gzip
import http.client
import json
import os
import re
import shutil
import subprocess
import threading

import pytest
from instance import TOP, until
from oauthclient import PASSWORD, people

TEXTS = str(TOP / "web" / "app" / "text" / "en.json")


@pytest.fixture(scope="module")
def chromium():
    path = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    if not path:
        pytest.skip("Chromium is not installed here (package chromium)")
    return path


class Person:
    """A browser that does what it is told, a line at a time."""

    def __init__(self, peers, chromium, folder, instance):
        self.script = peers.driver("browser", "app.mjs", folder)
        given = json.dumps({"login": "ada", "password": PASSWORD, "texts": TEXTS})
        env = peers.env(CHROMIUM=chromium, HOME=str(folder), **({"SHOTS": os.environ["SHOTS"]} if "SHOTS" in os.environ else {}))
        self.process = subprocess.Popen([peers.node, self.script, "live", instance.url, given], env=env, text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def __call__(self, do, at=None, **how):
        self.process.stdin.write(json.dumps({"do": do, **({"at": at} if at else {}), **how}) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, self.process.stderr.read()[-3000:]
        answer = json.loads(line)
        assert "error" not in answer, (do, at, how, answer["error"])
        return answer.get("ok")

    def clean(self):
        """Nothing on the console, nothing asked of another host."""
        seen = self("seen")
        assert not seen["foreign"]
        assert not seen["console"], "\n".join(seen["console"])

    def end(self):
        self.process.stdin.close()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()


@pytest.fixture
def person(peers, chromium, tmp_path):
    made = []

    def start(instance, **how):
        made.append(Person(peers, chromium, tmp_path, instance))
        made[-1]("enter", **how)
        return made[-1]

    yield start
    for one in made:
        one.end()


def streams(client):
    return int(re.search(r"^psbx_event_streams (\d+)", client.rest("GET", "/metrics")[2].decode(), re.M)[1])


def run(client, box, cmd, note, **more):
    return client.tool("sandbox_exec", {"id": box, "cmd": cmd, "note": note, **more})


# --- every screen ----------------------------------------------------------------------------------------------------
def test_every_screen(new_server, peers, chromium, tmp_path):
    server = new_server()
    people(server)
    one, two, three = (server.client(agent=f"conversation-{name}") for name in ("one", "two", "three"))
    one.client, two.client, three.client = "claude-code/2.1.3", "codex/0.98.0", "gemini-cli/0.30"
    working = one.start(goal="Make the parser of the settings file accept comments, and prove it with tests", name="parser-comments",
                        services=[{"name": "web", "port": 5173, "web": True}])
    run(one, working, "mkdir -p app; echo hello", "Looks around")
    run(one, working, "for i in 1 2 3; do echo test $i; done\nexit 1", "Runs the tests of the parser")
    threading.Thread(target=run, args=(one, working, "sleep 3600", "Runs the tests again, after the fix"), kwargs={"timeoutSec": 3600}, daemon=True).start()
    stopped = two.start(goal="Find out why the nightly build takes forty minutes")
    run(two, stopped, "echo found > findings.txt", "Writes down what it found")
    two.rest("POST", "/v1/agents/conversation-two/leave", {})
    boxes = [working, stopped, three.start(goal="設定画面の日本語訳を直す", name="settings-ja")]
    for box, repo, agent in ((boxes[0], "acme%2Fsettings-parser", one), (boxes[2], "acme%2Fweb", three)):
        agent.rest("POST", f"/v1/boxes/{box}/sync?dest=repo&repo={repo}", gzip.compress(b"\0" * 1024))
    run(three, boxes[2], "true", "Looks for what is not translated yet")
    given = json.dumps({"login": "ada", "password": PASSWORD, "texts": TEXTS, "working": working, "stopped": stopped})
    env = {name: os.environ[name] for name in ("SHOTS", "ONLY") if name in os.environ}
    done = peers.run([peers.driver("browser", "app.mjs", tmp_path), "screens", server.url, given], timeout=900, CHROMIUM=chromium, HOME=str(tmp_path), **env)
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    seen = json.loads(done.stdout.strip().splitlines()[-1])
    assert not seen["problems"], "\n".join(seen["problems"])
    assert seen["visited"] >= (8 if "ONLY" in env else 120)
    for box in boxes:
        one.stop(box)


# --- as it happens ---------------------------------------------------------------------------------------------------
def test_from_nothing_to_stopped(new_server, person):
    server = new_server()
    people(server)
    agent = server.client(agent="watched")
    ada = person(server)
    ada("wait", ".live-live")
    ada("wait", ".blank", text="No box is running")
    assert not ada("check")
    box = agent.start(goal="Try things", name="trial")
    ada("wait", ".box-card.working h3", text="Try things")
    done = threading.Event()
    threading.Thread(target=lambda: (run(agent, box, "until [ -e go ]; do sleep 0.1; done; exit 4", "Waits for a sign"), done.set()), daemon=True).start()
    ada("wait", ".box-card .doing.runs", text="Waits for a sign")
    ada("click", ".box-card .whole")
    assert ada("url") == f"/app/boxes/{box}"
    assert ada("focused") == "H1 Try things", "whoever listens is told where they are"
    ada("wait", ".step.runs .step-note", text="Waits for a sign")
    run(agent, box, "echo x > go", "Gives the sign")
    assert done.wait(30)
    ada("wait", ".step.bad .step-result", text="exit 4")
    ada("wait", ".step.good", text="Gives the sign")
    assert len(ada("texts", ".step")) == 2
    ada("click", ".step.bad .step-head")
    ada("wait", ".step-body pre", text="until [ -e go ]")
    ada("click", ".step-body psbx-copy button")
    assert ada("eval", code="navigator.clipboard.readText()") == "until [ -e go ]; do sleep 0.1; done; exit 4"
    # The conversation ends without a word.
    agent.rest("POST", "/v1/agents/watched/leave", {})
    ada("wait", ".state-stopped")
    ada("wait", ".notice.warn", text="The AI stopped.")
    ada("click", ".back")
    ada("wait", "#group-you")
    ada("wait", ".bar-links .count", text="1")
    # Stopping it says first what would be lost.
    ada("click", ".box-card.stopped footer button")
    ada("wait", "dialog .unsaved", text="/work/go")
    assert "Keep it" in ada("focused"), "the harmless answer is the first"
    ada("press", key="Escape")
    ada("wait", "dialog[open]", gone=True)
    assert "Stop" in ada("focused"), "the focus goes back to where it was"
    other = server.client()  # the agent's own calls would be a sign of life
    assert json.loads(other.rest("GET", f"/v1/boxes/{box}")[2])["status"] == "running"
    ada("click", ".box-card.stopped footer button")
    ada("wait", "dialog .unsaved")
    ada("click", "dialog .danger")
    ada("wait", ".box-card", gone=True)
    ada("wait", ".blank")
    assert box not in [row["id"] for row in json.loads(other.rest("GET", "/v1/boxes")[2])["boxes"]]
    ada.clean()
    other.tool("sandbox_stop", {"id": box})


def test_one_stream_for_all_tabs(new_server, person):
    server = new_server()
    people(server)
    client = server.client()
    ada = person(server)
    ada("wait", ".live-live")
    ada("tab", name="two")
    ada("wait", ".live-live", tab="two")
    ada("tab", name="three", path="/app/design")
    ada("wait", ".live-live", tab="three")
    until(lambda: streams(client) == 1)
    first = client.start(goal="seen in every tab")
    for tab in ("one", "two"):
        ada("wait", ".box-card", tab=tab, text="seen in every tab")
    ada("close", tab="one")
    second = client.start(goal="seen by those who stayed")
    ada("wait", ".box-card", tab="two", text="seen by those who stayed")
    ada("wait", ".live-live", tab="two")
    until(lambda: streams(client) == 1)
    ada.clean()
    client.stop(first)
    client.stop(second)


def test_a_box_that_ends_while_one_looks(new_server, person):
    server = new_server()
    people(server)
    client = server.client()
    box = client.start(goal="short-lived")
    ada = person(server, path=f"/app/boxes/{box}")
    ada("wait", ".blank", text="Nothing was run in this box yet")
    client.tool("sandbox_stop", {"id": box})
    client.tool("sandbox_stop", {"id": box})
    ada("wait", ".notice", text="This box is over")
    ada.clean()


def test_archived_brought_back_and_deleted(new_server, person):
    server = new_server()
    people(server)
    client = server.client()
    box = client.start(goal="to be put away")
    run(client, box, "echo kept > kept.txt", "Leaves a file")
    ada = person(server)
    ada("wait", ".box-card", text="to be put away")
    client.tool("sandbox_stop", {"id": box})
    ada("wait", ".box-card", gone=True)
    ada("click", ".more button")
    ada("wait", ".box-card.archived .why", text="Its files are kept until")
    assert not ada("check")
    ada("click", ".box-card.archived psbx-restore button")
    ada("wait", ".box-card.archived", gone=True)
    ada("wait", ".box-card", text="to be put away")
    assert run(client, box, "cat kept.txt", "Reads it again").data["stdout"] == "kept\n"
    client.tool("sandbox_stop", {"id": box})
    ada("wait", ".box-card.archived")
    ada("click", ".box-card.archived .whole")
    ada("wait", ".notice psbx-restore button")
    assert not ada("check")
    ada("click", ".box-head button")
    ada("wait", "dialog h2", text="Delete this box?")
    ada("click", "dialog .danger")
    ada("wait", ".notice", text="This box is over")
    assert client.rest("GET", f"/v1/boxes/{box}")[0] == 404
    assert client.rest("POST", f"/v1/boxes/{box}/restore")[0] == 404
    ada.clean()


# --- hostile text ----------------------------------------------------------------------------------------------------
HOSTILE = ["<img src=x onerror=\"window.hacked=1\">", "<script>window.hacked=1</script>", "\"><svg onload=window.hacked=1>", "{{constructor.constructor('window.hacked=1')()}}",
           "${window.hacked=1}", "javascript:window.hacked=1", "</bdi></a><iframe src=//evil.example>", "<style>*{display:none}</style>", "\u202egnp.exe", "<!--?lit$1$-->"]


def test_hostile_text_is_text(new_server, person):
    server = new_server()
    people(server)
    agent = server.client(agent="hostile")
    boxes = []
    for text in HOSTILE:
        box = agent.start(goal=f"goal {text}", name=text[:60])
        boxes.append(box)
        run(agent, box, f"true # {text}", f"note {text}")
        status = agent.rest("POST", f"/v1/boxes/{box}/sync?dest=x&repo=" + "".join(f"%{b:02x}" for b in text.encode()), gzip.compress(b"\0" * 1024))[0]
        assert status == 200
    ada = person(server)
    ada("wait", ".box-card >> nth=9")
    shown = ada("eval", code="[...document.querySelectorAll('.box-card')].map(card => card.textContent).join('\\n')")
    for text in HOSTILE:
        assert shown.count(text) >= 3, text  # goal, name, repository
    for box, text in zip(boxes, HOSTILE):
        ada("goto", path=f"/app/boxes/{box}")
        ada("wait", ".step >> nth=1")
        ada("click", ".step >> nth=1 >> .step-head")
        ada("wait", ".step-body pre")
        page = ada("eval", code="document.querySelector('main').textContent")
        assert page.count(text) >= 5, (text, page)  # goal, note, the command twice, repository
        ada("click", ".box-head button")
        ada("wait", "dialog .notice")
        assert text in ada("eval", code="document.querySelector('dialog').textContent")
        assert ada("eval", code="document.querySelectorAll('main img, main script, main iframe, main style, main svg:not(.icon)').length") == 0
        assert ada("eval", code="window.hacked") is None
        assert ada("eval", code="getComputedStyle(document.querySelector('h1')).display") == "block"
    ada.clean()
    for box in boxes:
        agent.stop(box)


def test_the_policy_bites(new_server, person):
    """What the browser is told to refuse, it does refuse: markup from text, another host, inline script."""
    server = new_server()
    people(server)
    ada = person(server)
    ada("wait", ".live-live")
    for code in ("document.body.innerHTML = '<b>x</b>'", "document.createElement('script').src = '/app/x.js'", "setTimeout('1')",
                 "trustedTypes.createPolicy('other', {})"):
        assert ada("eval", code=f"(() => {{ try {{ {code}; return 'done' }} catch (error) {{ return error.name }} }})()") == "TypeError", code
    for code in ("fetch('https://example.org/').then(() => 'done', () => 'refused')", "fetch('http://127.0.0.1:1/').then(() => 'done', () => 'refused')",
                 "new Promise(r => { const i = new Image(); i.onload = () => r('done'); i.onerror = () => r('refused'); i.src = 'http://example.org/x.png'; })"):
        assert ada("eval", code=code) == "refused", code
    assert ada("eval", code="(() => { const s = document.createElement('div'); s.setAttribute('style', 'color: red'); document.body.append(s); return s.style.color })()") == ""
    assert ada("seen")["foreign"] == [], "the policy refuses before anything is sent"


# --- without a server, and without a network --------------------------------------------------------------------------
def test_restart_offline_and_back(new_server, person):
    server = new_server()
    people(server)
    client = server.client()
    first = client.start(goal="before the restart")
    ada = person(server)
    ada("wait", ".box-card", text="before the restart")
    ada("eval", code="navigator.serviceWorker.ready.then(() => true)")
    until(lambda: ada("eval", code="caches.open('shell').then(c => c.keys()).then(k => k.length)") > 20)
    server.stop()
    ada("wait", ".live-waiting")
    ada("wait", ".live-offline", text="Offline: showing", timeout=60000)
    assert "before the restart" in ada("text", ".box-card"), "what was known stays"
    ada("shot", name="offline")
    # The shell alone, from nothing but the browser.
    ada("reload")
    ada("wait", ".notice.bad", text="The server cannot be reached")
    assert not ada("check")
    ada("shot", name="unreachable")
    kept = ada("eval", code="caches.open('shell').then(c => c.keys()).then(k => k.map(r => new URL(r.url).pathname))")
    assert kept and all(path.startswith("/app/") for path in kept), "nothing but the shell is kept"
    server.start()
    second = server.client().start(goal="after the restart")
    ada("wait", ".live-live", timeout=60000)
    ada("wait", ".box-card", text="after the restart", timeout=60000)
    ada("wait", ".box-card", text="before the restart")
    client.stop(first)
    client.stop(second)


def test_signed_out(new_server, person):
    server = new_server()
    people(server)
    ada = person(server)
    ada("wait", ".live-live")
    ada("eval", code="document.cookie")
    server.command("users", "remove", "ada")
    ada("goto", path="/app/")
    ada("wait", "form[action='/sign-in'], form #login")
    assert ada("url") == "/sign-in"


def test_language_and_theme_stay(new_server, person):
    server = new_server()
    people(server)
    ada = person(server)
    ada("wait", ".live-live")
    ada("click", "psbx-menu > button")
    ada("click", ".menu button", text="日本語")
    ada("wait", "h1", text="ボックス")
    ada("click", ".menu button", text="ダーク")
    assert ada("eval", code="[document.documentElement.lang, document.documentElement.dataset.theme]") == ["ja", "dark"]
    ada("reload")
    ada("wait", "h1", text="ボックス")
    assert ada("eval", code="getComputedStyle(document.body).backgroundColor") == "rgb(15, 18, 24)"
    ada("goto", path="/settings")
    ada("wait", "h1", text="設定")
    ada("goto", path="/?lang=zh-Hant")
    ada("click", ".lead a")
    ada("wait", "h1", text="沙箱")
    ada.clean()


# --- how it is served ------------------------------------------------------------------------------------------------
def fetch(server, path, method="GET", **headers):
    link = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    try:
        link.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        answer = link.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
    finally:
        link.close()


def test_files(server):
    status, headers, page = fetch(server, "/app/")
    assert status == 200 and headers["cache-control"] == "no-cache" and headers["content-type"] == "text/html; charset=utf-8"
    policy = dict(part.strip().split(" ", 1) if " " in part.strip() else (part.strip(), "") for part in headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'" and policy["script-src"] == "'self'" and policy["style-src"] == "'self'" and policy["frame-ancestors"] == "'none'"
    assert policy["require-trusted-types-for"] == "'script'" and "unsafe" not in headers["content-security-policy"] and policy["base-uri"] == "'none'"
    assert b"<script>" not in page and b"style=" not in page
    seen, todo, first = {}, re.findall(rb'(?:src|href)="(/app/[^"]+)"', page), len(gzip.compress(page, 9))
    preloaded = set(re.findall(rb'modulepreload" href="([^"]+)"', page))
    while todo:
        path = todo.pop().decode()
        if path in seen or path == "/app/":
            continue
        status, headers, packed = fetch(server, path, Accept_Encoding="gzip, br")
        assert status == 200 and headers["content-encoding"] == "gzip", path
        plain = fetch(server, path)
        assert "content-encoding" not in plain[1] and plain[2] == gzip.decompress(packed), path
        assert fetch(server, path, Accept_Encoding="gzip;q=0, identity")[2] == plain[2]
        fixed = path.startswith("/app/a/")
        assert headers["cache-control"] == ("public, max-age=31536000, immutable" if fixed else "no-cache"), path
        assert fetch(server, path, If_None_Match=headers["etag"])[0] == 304
        assert headers["x-content-type-options"] == "nosniff" and headers["vary"] == "Accept-Encoding"
        assert fetch(server, path, "HEAD")[2] == b""
        seen[path] = packed
        todo += re.findall(rb"""["'](/app/a/[^"']+)["']""", plain[2])
        for module in re.findall(rb"""(?:from|import)\s*["'](/app/a/[^"']+)["']""", plain[2]) if path.encode() in preloaded else []:
            assert module in preloaded, "a module that is needed at once is loaded ahead"
    assert len(seen) > 25
    first += sum(len(data) for path, data in seen.items() if path.encode() in preloaded or re.search(r"/(app|tokens|early|icon|ja)-[0-9a-f]+\.", path))
    assert first <= 60000, first
    for path, method, status in (("/app/a/none.js", "GET", 404), ("/app/a/", "GET", 404), ("/app/", "POST", 405), ("/app/any/screen", "GET", 200), ("/app", "GET", 200),
                                 ("/application", "GET", 404), ("/app/..%2f..%2fetc/passwd", "GET", 200)):
        got, headers, body = fetch(server, path, method)
        assert got == status or (".." in path and got in (200, 400, 404)), (path, got)
        assert b"root:" not in body


def build(folder, change):
    """Runs the build of the app on a copy of it that was changed."""
    top = folder / "top"
    shutil.copytree(TOP / "web", top / "web")
    shutil.copytree(TOP / "scripts", top / "scripts", ignore=shutil.ignore_patterns("__pycache__"))
    change(top / "web" / "app")
    names = [str(path) for path in sorted((top / "web" / "app").rglob("*")) if path.suffix in (".js", ".css", ".json", ".html", ".webmanifest") and "package" not in path.name]
    names += [str(top / "web" / "tokens.css"), str(top / "web" / "pages" / "icon.svg")]
    done = subprocess.run(["/usr/bin/python3", str(TOP / "src" / "web" / "embed_app.py"), str(folder / "x.h"), str(folder / "x.c"), str(top), *names],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def edit(name, old, new):
    def change(app):
        text = (app / name).read_text()
        assert old in text, (name, old)
        (app / name).write_text(text.replace(old, new, 1))
    return change


@pytest.mark.parametrize("change, says", [
    (lambda app: None, None),
    (edit("text/ja.json", '"stop": ', '"halt": '), "ja: texts differ from en: ['halt', 'stop']"),
    (edit("text/zh-Hant.json", "{time}", "{when}"), "zh-Hant: live_offline has other names"),
    (edit("text/en.json", '"stop": ', '"skip": "twice",\n  "stop": '), "a text is there twice: ['skip', 'skip']"),
    (edit("parts/bar.js", "t('live')", "t('lively')"), "texts that do not exist: ['lively']"),
    (edit("parts/bar.js", "t('live_waiting')", "t('live')"), "texts that nothing uses: ['live_waiting']"),
    (edit("base/text.js", "const files", "import './part.js';\nconst files"), "imports itself"),
    (edit("main.js", "./parts/bar.js", "./parts/none.js"), "./parts/none.js does not exist"),
    (lambda app: (app / "style" / "app.css").write_bytes((app / "style" / "app.css").read_bytes() + b"/*" + os.urandom(40000).hex().encode() + b"*/"), "the first load is"),
])
def test_the_build_refuses(peers, tmp_path, change, says):
    code, output = build(tmp_path, change)
    assert (code == 0) == (says is None), output
    if says:
        assert says in output
