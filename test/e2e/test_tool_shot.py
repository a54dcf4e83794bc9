"""sandbox_shot: pictures of a box's screen; the display that starts when it is first needed."""

import json

import pytest

from instance import until
from mcpclient import gather
from screen import paint, picture, shot

RED, GREEN, BLUE = (0xcc, 0x11, 0x22), (0x11, 0xcc, 0x22), (0x11, 0x22, 0xcc)


@pytest.fixture(scope="module")
def one(server):
    client = server.client()
    name = client.start(size="small")
    yield client, name
    client.stop(name)


@pytest.fixture
def fresh(server):
    client = server.client()
    name = client.start(size="small")
    yield client, name
    client.stop(name)


def running(client, box):
    return client.exec(box, "pgrep -xc Xtigervnc")["stdout"].strip()


def test_nothing_runs_before_the_first_look(fresh):
    client, box = fresh
    assert running(client, box) == "0"
    assert client.exec(box, "echo $DISPLAY")["stdout"] == ":99\n"
    result, image = shot(client, box)
    assert (image.width, image.height, image.mime, image.codec) == (1280, 800, "image/png", "png")
    assert running(client, box) == "1"
    assert result["width"] == 1280 and result["height"] == 800 and result["scale"] == 1 and result["format"] == "png"
    assert result["screen"] == {"width": 1280, "height": 800}
    assert result["region"] == {"x": 0, "y": 0, "width": 1280, "height": 800}
    assert result["bytes"] == len(image.data)


def test_the_first_client_of_any_kind_simply_succeeds(fresh):
    client, box = fresh
    results = gather([lambda: client.exec(box, "xdpyinfo | grep dimensions") for _ in range(5)])
    assert all("1280x800" in r["stdout"] for r in results), results
    assert running(client, box) == "1"


def test_pixels_are_those_of_the_screen(one):
    client, box = one
    paint(client, box, "#cc1122")
    _, image = shot(client, box)
    assert image.at(3, 3) == RED and image.at(1279, 799) == RED
    assert image.count(RED) > 1280 * 800 * 0.99  # all but the pointer
    window = client.exec(box, "nohup xterm -geometry 40x10+100+200 -bg '#1122cc' +sb -e sleep 1000 >/dev/null 2>&1 & "
                              "xdotool search --sync --onlyvisible --class xterm; sleep 0.3")
    assert window["exitCode"] == 0, window
    _, image = shot(client, box)
    assert image.at(90, 190) == RED and image.at(130, 280) == BLUE
    client.exec(box, "pkill xterm")


def test_formats(one):
    client, box = one
    paint(client, box, "#11cc22")
    result, image = shot(client, box, format="jpeg")
    assert (image.mime, image.codec, result["format"]) == ("image/jpeg", "mjpeg", "jpeg")
    assert image.near(5, 5, GREEN, 6) and image.near(1270, 790, GREEN, 6)
    result, image = shot(client, box, format="png")
    assert image.codec == "png" and image.at(5, 5) == GREEN


def test_region(one):
    client, box = one
    paint(client, box, "#11cc22")
    client.exec(box, "nohup xterm -geometry 40x10+100+200 -bg '#1122cc' +sb -bw 0 -e sleep 1000 >/dev/null 2>&1 & "
                     "xdotool search --sync --onlyvisible --class xterm; sleep 0.3")
    result, image = shot(client, box, region={"x": 90, "y": 195, "width": 40, "height": 30})
    assert (image.width, image.height) == (40, 30) and result["scale"] == 1
    assert result["region"] == {"x": 90, "y": 195, "width": 40, "height": 30}
    assert image.at(2, 2) == GREEN and image.at(39, 29) == BLUE
    result, image = shot(client, box, region={"x": 1279, "y": 799, "width": 1, "height": 1}, format="jpeg")
    assert (image.width, image.height) == (1, 1)
    client.exec(box, "pkill xterm")


def test_a_large_and_noisy_screen_stays_within_the_limits(fresh):
    client, box = fresh
    mode = client.exec(box, "xrandr --newmode big 0 3840 0 0 3840 2160 0 0 2160 2>/dev/null; xrandr --addmode VNC-0 big; "
                            "xrandr --output VNC-0 --mode big && xdpyinfo | grep dimensions")
    assert "3840x2160" in mode["stdout"], mode
    noise = client.exec(box, "ffmpeg -v error -f rawvideo -pix_fmt rgb24 -s 3840x2160 -i /dev/urandom -frames:v 1 -y /tmp/n.png && "
                             "(nohup ffplay -v error -noborder -x 3840 -y 2160 /tmp/n.png >/dev/null 2>&1 &) ; "
                             "timeout 60 xdotool search --sync --onlyvisible --class ffplay")
    assert noise["exitCode"] == 0, noise
    # Random pixels do not compress: once they are there, a PNG of them cannot be had at this size.
    until(lambda: shot(client, box)[0]["format"] == "jpeg", 60)
    for arguments in ({}, {"format": "png"}, {"format": "jpeg"}):
        result, image = shot(client, box, **arguments)
        assert image.width * image.height <= 1_150_000 and len(image.data) < 1_000_000
        assert abs(image.width / image.height - 16 / 9) < 0.01
        assert result["screen"] == {"width": 3840, "height": 2160} and abs(result["scale"] - image.width / 3840) < 1e-6
        assert result["format"] == ("png" if arguments.get("format") == "png" else "jpeg")


@pytest.mark.parametrize("arguments, words", [
    ({"format": "gif"}, "format"),
    ({"record": "pause"}, "record"),
    ({"region": {"x": 0, "y": 0, "width": 10}}, "height"),
    ({"region": {"x": -1, "y": 0, "width": 10, "height": 10}}, "x"),
    ({"region": {"x": 0, "y": 0, "width": 0, "height": 10}}, "width"),
    ({"region": {"x": 1000, "y": 0, "width": 1000, "height": 10}}, "which has 1280 x 800 pixels"),
    ({"region": {"x": 0, "y": 800, "width": 1, "height": 1}}, "which has 1280 x 800 pixels"),
    ({"region": [1, 2, 3, 4]}, "region"),
    ({"record": "start", "format": "png"}, "`format`"),
    ({"record": "stop", "region": {"x": 0, "y": 0, "width": 10, "height": 10}}, "`region`"),
    ({"quality": 5}, "quality"),
])
def test_bad_arguments(one, arguments, words):
    client, box = one
    result = client.tool("sandbox_shot", {"id": box, **arguments})
    assert result.is_error and words in result.text and "sandbox_shot" in result.text
    assert not [b for b in result.content if b["type"] == "image"]


def test_unknown_box(one):
    result = one[0].tool("sandbox_shot", {"id": "nosuchbox"})
    assert result.is_error and "nosuchbox" in result.text


def test_screens_of_two_boxes_differ(server):
    client = server.client()
    boxes = [client.start(size="small") for _ in range(3)]
    colours = [("#cc1122", RED), ("#11cc22", GREEN), ("#1122cc", BLUE)]
    try:
        gather([lambda b=b, c=c: paint(client, b, c[0]) for b, c in zip(boxes, colours)])
        for box, (_, colour) in zip(boxes, colours):
            assert shot(client, box)[1].at(7, 7) == colour
    finally:
        gather([lambda b=b: client.stop(b) for b in boxes])


@pytest.mark.parametrize("signal", ["KILL", "TERM", "SEGV"])
def test_it_comes_back_after_the_x_server_was_ended(one, signal):
    client, box = one
    paint(client, box, "#cc1122")
    assert client.exec(box, f"pkill -{signal} -x Xtigervnc; while pgrep -x Xtigervnc; do sleep 0.05; done")["exitCode"] == 0
    assert shot(client, box)[1].at(7, 7) != RED  # a fresh one
    assert "1280x800" in client.exec(box, "xdpyinfo | grep dimensions")["stdout"]
    assert running(client, box) == "1"


def test_it_survives_the_end_of_everything_in_the_box(one):
    client, box = one
    shot(client, box)
    client.exec(box, "kill -9 -1")
    assert until(lambda: not client.tool("sandbox_shot", {"id": box}).is_error)
    assert client.exec(box, "rm -rf /tmp/.X11-unix /tmp/.X99-lock; xdpyinfo | grep -c dimensions")["stdout"] == "1\n"


def test_shots_at_once(one):
    client, box = one
    paint(client, box, "#1122cc")
    for result in gather([lambda: client.tool("sandbox_shot", {"id": box}) for _ in range(12)]):
        assert picture(result).at(7, 7) == BLUE


def test_nothing_listens_on_tcp(one):
    client, box = one
    shot(client, box)
    listening = client.exec(box, "cat /proc/net/tcp /proc/net/tcp6 | awk '$4 == \"0A\"'")["stdout"]
    assert listening == ""
    mode = client.exec(box, "stat -c '%a %U' /run/boxd/rfb.sock")["stdout"]
    assert mode == "600 root\n"


def test_an_image_without_an_x_server_says_so(fresh):
    client, box = fresh
    assert client.exec(box, "rm /usr/bin/Xtigervnc; rm -f /usr/bin/Xvnc; hash -r")["exitCode"] == 0
    result = client.tool("sandbox_shot", {"id": box})
    assert result.is_error and "Xtigervnc" in result.text and "`debian`" in result.text
    told = client.exec(box, "xdpyinfo")
    assert told["exitCode"] != 0 and "no X server" in told["stderr"] and "debian" in told["stderr"]
    # Installed meanwhile, it is found.
    client.exec(box, "printf '#!/bin/sh\\necho broken on purpose >&2\\nexit 1\\n' > /usr/bin/Xvnc; chmod +x /usr/bin/Xvnc")
    for _ in range(2):
        result = client.tool("sandbox_shot", {"id": box})
        assert result.is_error and "broken on purpose" in result.text
    assert "broken on purpose" in client.exec(box, "xdpyinfo")["stderr"]


def test_the_tool_is_listed_with_truthful_hints(one):
    tool = one[0].tools()["sandbox_shot"]
    assert tool["annotations"]["readOnlyHint"] is False and tool["annotations"]["destructiveHint"] is False
    assert set(tool["inputSchema"]["properties"]) == {"id", "record", "region", "format"}
    assert len(json.dumps(tool["description"])) < 2048
