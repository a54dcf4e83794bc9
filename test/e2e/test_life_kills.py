"""Server, boxhost and boxd are killed with -9 at random points of freezing, archiving and restoring: afterwards each box
is running, frozen, archived or lost with its files; none is gone, none is there twice."""

import os
import random
import signal
import threading
import time

from instance import until
from mcpclient import McpError

SEED = int(os.environ.get("PSBX_SEED") or random.randrange(1 << 30))
ROUNDS = int(os.environ.get("PSBX_KILL_ROUNDS") or 100)
BROKEN = (OSError, McpError, ValueError, AssertionError)


class Boxes:
    """Some boxes with a file each that grows, and what was said of them."""

    def __init__(self, server, count):
        self.server = server
        self.written = {}
        for _ in range(count):
            self.make(server.client())
        self.replaced = 0
        self.said = {}    # box -> the state that the last answered call promised
        self.asked = set()  # boxes that a call is about
        self.stopped = set()  # of those, in this round, to be stopped
        self.lock = threading.Lock()

    def make(self, client):
        box = client.start(size="small")
        assert client.exec(box, "seq 20000 > numbers; md5sum numbers > sum; echo 0 > round")["exitCode"] == 0
        self.written[box] = 0

    def replace(self, client, ended):
        """A box whose daemon was killed just before it was stopped is a lost one that is stopped: that deletes it."""
        listed = {row["id"] for row in client.tool("sandbox_list", {"all": True})["boxes"]}
        for box in set(self.written) - listed:
            assert box in ended & self.stopped, f"{box} is gone"
            del self.written[box]
            self.said.pop(box, None)
            self.replaced += 1
            until(lambda: not (self.server.boxes_on_disk() | self.server.archives_on_disk()) - set(self.written))
            self.make(client)
        self.stopped.clear()

    def step(self, draw):
        """One call on one box; what it answered is a promise."""
        box = draw.choice(sorted(self.written))
        with self.lock:
            if box in self.asked:
                return
            self.asked.add(box)
            self.said.pop(box, None)
        try:
            client = self.server.client()
            row = client.tool("sandbox_status", {"id": box})
            if row["status"] in ("archived", "lost"):
                result, then = client.tool("sandbox_start", {"goal": "back", "restore": box}), "running"
            elif draw.random() < 0.7:
                self.stopped.add(box)
                result, then = client.stop(box), "archived"
            else:
                result, then = client.exec(box, "true"), "running"
            if not result.is_error:
                with self.lock:
                    self.said[box] = then
        except BROKEN:
            pass
        finally:
            with self.lock:
                self.asked.discard(box)

    def rows(self, client):
        listed = client.tool("sandbox_list", {"all": True})["boxes"]
        assert sorted(row["id"] for row in listed) == sorted(self.written), listed
        return {row["id"]: row["status"] for row in listed}

    def agree(self, client):
        """What the list says is what the machine has."""
        rows = self.rows(client)
        boxes, archives = self.server.boxes_on_disk(), self.server.archives_on_disk()
        assert not boxes & archives, f"doubled: {boxes & archives}"
        if boxes | archives != set(self.written):
            return False
        for box, state in rows.items():
            if state in ("running", "frozen") and (box not in boxes or not os.path.exists(f"/proc/{self.server.box_pid(box)}")):
                return False
            if state == "archived" and box not in archives:
                return False
        return self.server.box_cgroups() <= boxes

    def check(self, client, ended, whole):
        self.replace(client, ended)
        try:
            until(lambda: self.agree(client))
        except AssertionError:
            raise AssertionError(f"the list says {self.rows(client)}, the disk {self.server.boxes_on_disk()} and the archive "
                                 f"{self.server.archives_on_disk()}, processes {self.server.box_cgroups()}") from None
        rows = self.rows(client)
        for box, promised in self.said.items():
            allowed = {"running": {"running", "frozen"}, "archived": {"archived"}}[promised] | ({"lost"} if box in ended else set())
            assert rows[box] in allowed, f"{box} was answered to be {promised} and is {rows[box]}"
        for box in ended:
            self.said.pop(box, None)
        for box in self.written if whole else ():
            self.said[box] = "running"
            answers = []
            try:
                result = until(lambda box=box: self.look(client, box, answers))
            except AssertionError:
                raise AssertionError(f"{box} does not come back: {set(answers)}") from None
            assert result["stdout"].split() == ["numbers:", "OK", str(self.written[box])], result
            self.written[box] += 1

    def look(self, client, box, answers):
        """One whose daemon was killed a moment ago may still count as running."""
        if self.rows(client)[box] in ("archived", "lost"):
            answers.append(client.tool("sandbox_start", {"goal": "look", "restore": box}).text)
        result = client.exec(box, "md5sum -c sum; cat round; echo $(($(cat round) + 1)) > round")
        answers.append(result.text)
        return None if result.is_error else result


def kill(server, boxes, draw, ended):
    """One of the programs, or two of them."""
    what = draw.random()
    if what < 0.3:
        pid = server.boxhost_pid()
        if pid:
            os.kill(pid, signal.SIGKILL)
    elif what < 0.5:
        for box in draw.sample(sorted(server.boxes_on_disk()), min(1, len(server.boxes_on_disk()))):
            ended.add(box)
            try:
                os.kill(server.box_pid(box), signal.SIGKILL)
            except (OSError, ValueError):
                pass
    if what < 0.2 or what >= 0.4:
        server.kill()
        server.start()
    until(lambda: server.boxhost_pid() and server.get("/readyz")[0] == 200)


def test_killed_at_a_hundred_random_points(new_server):
    server = new_server(arguments=("--freeze-after", "1s", "--archive-after", "never", "--max-boxes", "3"))
    boxes = Boxes(server, 3)
    draw = random.Random(SEED)
    states = {}
    for number in range(ROUNDS):
        ended = set()
        threads = [threading.Thread(target=boxes.step, args=(random.Random(draw.random()),), daemon=True) for _ in range(2)]
        try:
            for thread in threads:
                thread.start()
            time.sleep(draw.uniform(0, 0.25) if number % 4 else draw.uniform(1, 1.6))  # the longer ones: while boxes are frozen
            kill(server, boxes, draw, ended)
            for thread in threads:
                thread.join(120)
                assert not thread.is_alive(), "a call never came back"
            client = server.client()
            boxes.check(client, ended, whole=number % 5 == 4)
            for state in boxes.rows(client).values():
                states[state] = states.get(state, 0) + 1
            client.close()
        except BaseException as error:
            raise AssertionError(f"round {number}, PSBX_SEED={SEED}\n{server.log_tail()}") from error
    print(states)
    assert {"running", "frozen", "archived"} <= set(states), states
    assert boxes.replaced < ROUNDS / 10
