"""A box as people and agents look into it: one app on its screen by its own name, outside by its scene, asleep, put away, brought back."""

from instance import until
from sceneclient import Box, put
from screen import shot
from test_scenes_browser import VITE, browser, chromium_path, node_in, run  # noqa: F401 (fixtures)

# Colours say which words a screen shows without reading them.
PAINT = b"""import { says, colour } from './says.js';
const show = (text, c) => { document.querySelector('#says').textContent = text; document.title = text; document.body.style.background = c; };
show(says, colour);
if (import.meta.hot) import.meta.hot.accept('./says.js', changed => show(changed.says, changed.colour));
"""
FIRST, SECOND, THIRD = (0x22, 0x44, 0x66), (0x88, 0x22, 0x44), (0x11, 0x77, 0x33)


def css(colour):
    return "#%02x%02x%02x" % colour


def says(words, colour):
    return f"export const says = '{words}';\nexport const colour = '{css(colour)}';\n"


def change(box, words, colour):
    done = box.client.exec(box.id, "cat > app/says.new && mv app/says.new app/says.js", stdin=says(words, colour))
    assert done["exitCode"] == 0, done.text


def state(client, box):
    return next(row["status"] for row in client.tool("sandbox_list", {"all": True})["boxes"] if row["id"] == box.id)


def serve(box, peers):
    return run(box, "shop", f"cd app && exec {node_in(peers, box)} node_modules/vite/bin/vite.js")


def look(box):
    """Chromium on the box's own screen, by the name that the box has for its service."""
    return box.client.exec(box.id, "chromium --window-size=1280,800 --window-position=0,0 http://shop:5173/ >/tmp/chromium.log 2>&1",
                           background=True)["bgId"]


def on_screen(box, colour):
    def painted():
        _, image = shot(box.client, box.id)
        return image.near(1200, 700, colour, 2)
    until(painted, 120)


def test_one_app_seen_from_everywhere(new_server, peers, browser):  # noqa: F811
    server = new_server(arguments=("--freeze-after", "3s", "--archive-after", "never"))
    client = server.client()
    box = Box(server, client, [{"name": "shop", "port": 5173, "web": True}], run=False)
    files = {**VITE, "main.js": PAINT, "says.js": says("first words", FIRST).encode(),
             "vite.config.js": b"export default { server: { allowedHosts: ['shop'] } };\n"}  # it knows localhost by itself
    put(client, box.id, "app", *files.items(), ("node_modules", peers.modules("vite")))
    serve(box, peers)
    job = look(box)
    on_screen(box, FIRST)
    browser("open", url=box.data["webUrl"])
    browser("wait", selector="#says", text="first words")
    browser("eval", js="window.unreloaded = true")
    # one edit in the box, and both pages replace the module
    change(box, "second words", SECOND)
    browser("wait", selector="#says", text="second words")
    assert browser.value("eval", js="window.unreloaded") is True
    on_screen(box, SECOND)

    # asleep: nothing works in the box, and the page outside is still open
    client.tool("sandbox_procs", {"id": box.id, "action": "stop", "bgId": job})
    until(lambda: state(client, box) == "frozen", 120)
    browser("tab", page="later", url=box.data["webUrl"])
    browser("wait", selector="#says", text="second words", page="later")
    change(box, "third words", THIRD)
    for page in ("main", "later"):
        browser("wait", selector="#says", text="third words", page=page)

    # put away and brought back: the files, the names and the address are what they were; processes are started again
    stopped = client.stop(box.id)
    assert stopped["status"] == "archived", stopped.text
    again = client.tool("sandbox_start", {"goal": "go on", "restore": box.id})
    assert not again.is_error and again["id"] == box.id and again["webUrl"] == box.data["webUrl"], again.text
    serve(box, peers)
    look(box)
    on_screen(box, THIRD)
    browser("tab", page="back", url=box.data["webUrl"])
    browser("wait", selector="#says", text="third words", page="back")
    browser("eval", js="window.unreloaded = true", page="back")
    change(box, "last words", FIRST)
    browser("wait", selector="#says", text="last words", page="back")
    assert browser.value("eval", js="window.unreloaded", page="back") is True
    on_screen(box, FIRST)
    for _ in range(2):
        client.stop(box.id)
