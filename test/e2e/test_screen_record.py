"""sandbox_shot record: a video of the screen, made in the box."""

import json
import subprocess
import time

import pytest

from screen import paint, picture


@pytest.fixture
def one(server):
    client = server.client()
    name = client.start(size="medium")
    yield client, name
    client.stop(name)


def record(one, action, **arguments):
    client, box = one
    return client.tool("sandbox_shot", {"id": box, "record": action, **arguments})


def started(one, **arguments):
    result = record(one, "start", **arguments)
    assert not result.is_error, result.text
    assert result["recording"] is True and result["startedAt"].endswith("Z")
    return result


def stopped(one):
    result = record(one, "stop")
    assert not result.is_error, result.text
    assert result["recording"] is False
    return result


def video(one, result, tmp_path):
    status, headers, data = one[0].fetch(result["url"])
    assert status == 200 and headers["content-type"] == "video/mp4" and len(data) == result["bytes"]
    path = tmp_path / "recording.mp4"
    path.write_bytes(data)
    probe = json.loads(subprocess.run(
        ["ffprobe", "-v", "error", "-show_streams", "-show_format", "-count_frames", "-of", "json", path],
        capture_output=True, check=True).stdout)
    stream = probe["streams"][0]
    assert stream["codec_name"] == "h264" and stream["pix_fmt"] == "yuv420p" and len(probe["streams"]) == 1
    assert abs(float(probe["format"]["duration"]) - result["seconds"]) < 0.1
    return path, stream


def colour_at(path, seconds, x, y):
    """Of one frame of a video."""
    rgb = subprocess.run(
        ["ffmpeg", "-v", "error", "-ss", str(seconds), "-i", path, "-frames:v", "1", "-vf", f"crop=2:2:{x}:{y}", "-f",
         "rawvideo", "-pix_fmt", "rgb24", "-"], capture_output=True, check=True).stdout
    return tuple(rgb[:3])


def near(a, b):
    return all(abs(x - y) < 30 for x, y in zip(a, b))


def test_start_and_stop(one, tmp_path):
    client, box = one
    paint(client, box, "#cc1122")
    begin = started(one)
    assert begin["maxSeconds"] >= 600 and begin["maxBytes"] > 1 << 20
    time.sleep(2)
    paint(client, box, "#1122cc")
    time.sleep(2)
    result = stopped(one)
    assert 3.5 < result["seconds"] < 60
    path, stream = video(one, result, tmp_path)
    assert (stream["width"], stream["height"]) == (1280, 800)
    assert int(stream["nb_read_frames"]) >= 30
    assert near(colour_at(path, 0.2, 20, 20), (0xcc, 0x11, 0x22))
    assert near(colour_at(path, result["seconds"] - 0.3, 20, 20), (0x11, 0x22, 0xcc))
    overview = picture(result)
    assert overview.mime == "image/jpeg" and result["overview"] == {"width": overview.width, "height": overview.height}
    assert overview.width * overview.height <= 1_150_000 and len(overview.data) < 1_000_000
    # Twelve frames, four in a row: the first is the old colour, the last the new one.
    assert overview.near(10, 10, (0xcc, 0x11, 0x22), 40)
    assert overview.near(overview.width // 4 * 3 + 10, overview.height // 3 * 2 + 10, (0x11, 0x22, 0xcc), 40)
    # The index lies at the front: it plays while it is loaded.
    assert path.read_bytes().find(b"moov") < path.read_bytes().find(b"mdat")
    assert client.exec(box, "ls /var/lib/boxd/record")["stdout"] == ""


def test_states(one):
    result = record(one, "stop")
    assert result.is_error and "no recording" in result.text and "start" in result.text
    started(one)
    result = record(one, "start")
    assert result.is_error and "already" in result.text and "stop" in result.text
    stopped(one)
    assert record(one, "stop").is_error
    started(one)
    stopped(one)


def test_region(one, tmp_path):
    client, box = one
    paint(client, box, "#11cc22")
    started(one, region={"x": 101, "y": 51, "width": 301, "height": 201})
    time.sleep(1)
    _, stream = video(one, stopped(one), tmp_path)
    assert (stream["width"], stream["height"]) == (300, 200)  # even sides
    result = record(one, "start", region={"x": 1000, "y": 0, "width": 1000, "height": 100})
    assert result.is_error and "did not start" in result.text
    assert record(one, "stop").is_error
    started(one)
    stopped(one)


@pytest.mark.parametrize("command, limit", [("pkill -9 -x ffmpeg", 2.5), ("pkill -TERM -x ffmpeg", 0.5),
                                            ("pkill -9 -x Xtigervnc", 2.5)])
def test_one_that_ended_by_itself_is_not_lost(one, tmp_path, command, limit):
    client, box = one
    started(one)
    time.sleep(6)
    client.exec(box, f"{command}; while pgrep -x ffmpeg; do sleep 0.05; done")
    result = record(one, "start")
    assert result.is_error and "waits" in result.text
    result = stopped(one)
    assert "by itself" in result["note"] and result["seconds"] > 6 - limit - 1
    video(one, result, tmp_path)
    started(one)
    stopped(one)


def test_what_is_no_video_is_put_aside(one):
    client, box = one
    client.exec(box, "mkdir -p /var/lib/boxd/record; echo nonsense > /var/lib/boxd/record/screen.mp4")
    result = record(one, "stop")
    assert result.is_error and "unfinished.mp4" in result.text
    assert client.exec(box, "cat /var/lib/boxd/record/unfinished.mp4")["stdout"] == "nonsense\n"
    started(one)
    stopped(one)


def test_without_ffmpeg(one):
    client, box = one
    client.exec(box, "rm /usr/bin/ffmpeg")
    result = record(one, "start")
    assert result.is_error and "no ffmpeg" in result.text and "`debian`" in result.text
    assert record(one, "stop").is_error


def test_a_recording_outlives_the_server(new_server, tmp_path):
    instance = new_server()
    client = instance.client()
    box = client.start(size="medium")
    started((client, box))
    instance.kill()
    instance.start(port=instance.port)
    client = instance.client()
    time.sleep(1)
    assert record((client, box), "start").is_error
    result = stopped((client, box))
    assert result["seconds"] > 1
    video((client, box), result, tmp_path)


def test_two_boxes_record_at_once(server, tmp_path):
    client = server.client()
    boxes = [(client, client.start(size="small")) for _ in range(2)]
    for box, colour in zip(boxes, ("#cc1122", "#1122cc")):
        paint(*box, colour)
        started(box)
    time.sleep(1)
    for box, colour in zip(boxes, ((0xcc, 0x11, 0x22), (0x11, 0x22, 0xcc))):
        path, _ = video(box, stopped(box), tmp_path)
        assert near(colour_at(path, 0.3, 20, 20), colour)
        client.stop(box[1])
