"""What the tests of screens share: image blocks as pixels, and X programs that show something known."""

import base64
import json
import struct
import subprocess


class Picture:
    """The image block of a tool's result, decoded by ffmpeg."""

    def __init__(self, data, mime):
        self.data, self.mime = data, mime
        probe = json.loads(subprocess.run(
            ["ffprobe", "-v", "error", "-show_streams", "-of", "json", "-"], input=data, capture_output=True,
            check=True).stdout)["streams"][0]
        self.codec, self.width, self.height = probe["codec_name"], probe["width"], probe["height"]
        self.rgb = subprocess.run(
            ["ffmpeg", "-v", "error", "-i", "-", "-f", "rawvideo", "-pix_fmt", "rgb24", "-"], input=data,
            capture_output=True, check=True).stdout
        assert len(self.rgb) == self.width * self.height * 3

    def at(self, x, y):
        return struct.unpack_from("BBB", self.rgb, (y * self.width + x) * 3)

    def near(self, x, y, colour, tolerance=0):
        return all(abs(a - b) <= tolerance for a, b in zip(self.at(x, y), colour))

    def count(self, colour):
        want = bytes(colour)
        return sum(self.rgb[i:i + 3] == want for i in range(0, len(self.rgb), 3))


def picture(result):
    blocks = [b for b in result.content if b["type"] == "image"]
    assert len(blocks) == 1, result
    return Picture(base64.b64decode(blocks[0]["data"]), blocks[0]["mimeType"])


def shot(client, box, **arguments):
    result = client.tool("sandbox_shot", {"id": box, **arguments})
    assert not result.is_error, result.text
    return result, picture(result)


def paint(client, box, colour):
    """The root window in one colour, done when this returns."""
    result = client.exec(box, f"xsetroot -solid '{colour}'")
    assert result["exitCode"] == 0, result
