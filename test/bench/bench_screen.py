"""Pictures and recordings of a box's screen. Against what a program in the box would cost: ffmpeg and xwd on the same display, in the same box."""

import time

from benchlib import Caller, Row, Skip, median, note, p95

TITLE = "look at a box's screen, record it"

# What a person would see: text in windows, on a plain ground.
DRESS = ("xsetroot -solid '#336699'; (nohup xterm -geometry 100x40+20+20 -e 'ls -la /usr/bin | head -200; sleep 10000' "
         ">/dev/null 2>&1 &) ; xdotool search --sync --onlyvisible --class xterm >/dev/null; sleep 1")
GRAB = "ffmpeg -v error -nostdin -f x11grab -i :99 -frames:v 1 -y /tmp/grab.png"
# Plain x11grab by hand: the frame rate and the encoder of the product's own recordings.
BY_HAND = ("ffmpeg -v error -nostdin -f x11grab -framerate 15 -i :99 -t {seconds} -c:v libx264 -preset ultrafast -crf 26 "
           "-pix_fmt yuv420p -threads 2 -y /tmp/hand.mp4")
# Something moves while it is recorded: five lines a second.
MOVE = "(nohup xterm -geometry 80x20+400+300 -e 'while :; do date +%N; sleep 0.2; done' >/dev/null 2>&1 &) ; sleep 0.5"


def ok(client, box, cmd, **more):
    result = client.exec(box, cmd, **more)
    if result["exitCode"] != 0:
        raise RuntimeError(f"{cmd}: {result}")
    return result


def cpu_ms(client, box):
    return client.tool("sandbox_status", {"id": box})["resources"]["cpu"]["usedMs"]


def shots(caller, client, box, bench):
    ours, ffmpegs, xwds = [], [], []
    for number in range(bench.rounds(60, 10) + 3):
        took, result = caller.call("sandbox_shot", {"id": box})
        if result["width"] != 1280:
            raise RuntimeError(result)
        grab, _ = caller.call("sandbox_exec", {"id": box, "cmd": GRAB, "note": "a measurement"})
        xwd, _ = caller.call("sandbox_exec", {"id": box, "cmd": "xwd -root -silent -out /tmp/grab.xwd", "note": "a measurement"})
        if number >= 3:
            ours.append(took / 1000)
            ffmpegs.append(grab / 1000)
            xwds.append(xwd / 1000)
    note(f"a shot: p95 {p95(ours):.1f} ms, {len(ours)} rounds")
    return median(ours), median(ffmpegs), median(xwds)


def first_shots(caller, client, bench):
    """The whole first look, X server's start included, against a program that needs the display first."""
    ours, others = [], []
    for _ in range(bench.rounds(10, 2)):
        for sink, tool, arguments in ((ours, "sandbox_shot", {}),
                                      (others, "sandbox_exec", {"cmd": GRAB, "note": "a measurement"})):
            box = client.start("measure a first look")
            took, _ = caller.call(tool, {"id": box, **arguments})
            sink.append(took / 1000)
            client.stop(box)
    return median(ours), median(others)


def recording(client, box, seconds):
    """CPU seconds of the whole box for each second recorded: ours, by hand, and with nobody recording."""
    def spent(fn):
        before, begun = cpu_ms(client, box), time.monotonic()
        fn()
        return (cpu_ms(client, box) - before) / 1000 / (time.monotonic() - begun)

    idle = spent(lambda: time.sleep(seconds))
    client.tool("sandbox_shot", {"id": box, "record": "start"})
    time.sleep(1)
    ours = spent(lambda: time.sleep(seconds))
    result = client.tool("sandbox_shot", {"id": box, "record": "stop"})
    if result["seconds"] < seconds:
        raise RuntimeError(result)
    job = client.exec(box, BY_HAND.format(seconds=seconds + 4), background=True)["bgId"]
    time.sleep(1)
    hand = spent(lambda: time.sleep(seconds))
    client.tool("sandbox_procs", {"id": box, "action": "stop", "bgId": job})
    note(f"recording: {result['bytes'] / result['seconds'] / 1000:.1f} kB a second; idle box {idle * 100:.1f} % of a core")
    return ours - idle, hand - idle


def run(bench):
    for program in ("Xtigervnc", "ffmpeg", "xwd", "xterm", "xdotool", "xsetroot"):
        bench.need(program, "screens are measured with it")
    instance = bench.server()
    caller = Caller(instance, bench.floor("post", "127.0.0.1", instance.port))
    client = caller.client
    box = client.start("measure looking at a screen", size="medium")
    if client.tool("sandbox_shot", {"id": box}).is_error:
        raise Skip("no screen in a box here")
    ok(client, box, DRESS)
    ours, ffmpeg, xwd = shots(caller, client, box, bench)
    yield Row("warm shot", ours, "ffmpeg in the box", ffmpeg, ours / ffmpeg, at_most=0.3)
    yield Row("warm shot, encoded", ours, "xwd in the box, raw", xwd, ours / xwd, at_most=1.5)
    cold, other = first_shots(caller, client, bench)
    yield Row("first shot of a cold box", cold, "ffmpeg in the box", other, cold / other, at_most=0.8)
    ok(client, box, MOVE)
    mine, hand = recording(client, box, bench.rounds(20, 4))
    yield Row("recording, CPU s for a second", mine, "ffmpeg by hand", hand, mine / hand, unit="s", at_most=1.2)
    client.stop(box)


