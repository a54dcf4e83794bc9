"""A canary: values that a box prints in every way there is are nowhere in what the server keeps, logs or answers.

The search looks for any ten characters in a row of each value, as it is and encoded. It is shown to find what is
there: the same commands in a box that was not given the secrets, and planted copies."""

import json
import secrets

import pytest
from instance import until
from secretlib import Seen, kept, leaks, put, rest

PRINT = r"""
echo "$V"; env | grep -a "^$N="; printenv $N; set | grep -a -A3 "^$N="; export -p | grep -a -A3 " $N="
printf %s "$V" | base64; printf 'x%s' "$V" | base64 -w0; echo; printf 'xy%sz' "$V" | base64 | tr '+/' '-_'
printf %s "$V" | od -An -tx1 -v | tr -d ' '; printf %s "$V" | od -An -tx1 -v | tr -d ' \n'
python3 -c 'import os,json,urllib.parse as u; v=os.environ[os.environ["N"]]; print(json.dumps(v), json.dumps({"a": [v]}, ensure_ascii=False), u.quote(v), u.quote(v, safe=""), u.quote_plus(v), repr(v).strip("\x27\x22"))' 2>/dev/null
( set -x; : "$V" ) 2>&1; echo "$V" >&2
i=0; while [ $i -lt ${#V} ]; do printf %s "${V:i:3}"; sleep 0.002; i=$((i+3)); done; echo
h=$(( ${#V} / 2 )); printf %s "${V:0:h}"; sleep 0.1; printf 'between' >&2; sleep 0.1; printf '%s\n' "${V:h}"
printf '%s' "$V" > /tmp/held; cat /tmp/held; cat /tmp/held /tmp/held
ls "/nowhere/$V"; "$V"; cat "/nowhere/${V}"
"""
# All of it at every place of a cut: the output consists of nothing else.
MUCH = 'for i in $(seq $((120000 / ${#V}))); do printf "%s " "$V"; done; for i in $(seq $((90000 / ${#V}))); do printf "%s" "$V" >&2; done; '


def command(name, script):
    return f'export N={name}; V="${{!N}}"; {script}'


def use(seen, client, box, names, values):
    """Every output path of a box, with every value."""
    for name, value in zip(names, values):
        quoted = "'" + value.replace("'", "'\\''") + "'"
        line = value.split("\n")[1] if "\n" in value else value  # what fits where only one line does

        def run(cmd, **more):
            return seen.tool(client, "sandbox_exec", {"id": box, "note": f"it uses {line}", **more, "cmd": cmd})

        run(command(name, PRINT))
        run(command(name, PRINT + "exit 7"))
        run(f"echo {quoted}; exit 3")
        run("x" * 480 + f"; echo {quoted} {quoted}", background=True)
        run(command(name, MUCH))
        for offset in range(0, 44, 7):
            run(f"head -c {12288 - offset} /dev/zero | tr '\\0' x; " + command(name, 'printf "%s" "$V"; ') + "head -c 30000 /dev/zero | tr '\\0' y")
        job = run(command(name, MUCH + "sleep 0.3; " + MUCH), background=True).data["bgId"]
        long = run(command(name, 'echo "$V"; printf "%s" "${V:0:9}"; sleep 600'), background=True).data["bgId"]
        for arguments in ({"action": "list", "all": True}, {"action": "list"},
                          {"action": "wait", "bgId": long, "until": "ready", "readyLog": value[:8]},
                          {"action": "wait", "bgId": long, "timeoutSec": 0}, {"action": "wait", "bgId": job, "tail": 3},
                          {"action": "wait", "bgId": job, "timeoutSec": 60}, {"action": "wait", "bgId": job},
                          {"action": "input", "bgId": long, "stdin": value}, {"action": "stop", "bgId": long},
                          {"action": "stop", "bgId": line}):
            seen.tool(client, "sandbox_procs", {"id": box, **arguments})
        run("true", cwd=line)
        run("true", cwd="nowhere/" + value)
        run("cat; exit 1", stdin=value, env={"OTHER": value})
        run("echo $OTHER | rev | rev", env={"OTHER": value})
        run('echo "$0: $1"', execId=line)
        run("sleep 5", timeoutSec=1, note=line)
        seen.tool(client, "sandbox_get", {"id": box, "path": value})
        seen.tool(client, "sandbox_get", {"id": box, "paths": [value, "/tmp/" + value]})


def look(seen, instance, client, box):
    for name, arguments in (("sandbox_status", {"id": box}), ("sandbox_list", {}), ("sandbox_list", {"all": True}), ("sandbox_secrets", {}),
                            ("sandbox_secrets", {"id": box})):
        seen.tool(client, name, arguments)
    for path in ("/v1/boxes", "/v1/boxes?all=true", f"/v1/boxes/{box}", "/v1/secrets", "/metrics", "/healthz"):
        seen.add(path, rest(instance, "GET", path)[1])


@pytest.fixture
def values():
    return [f"canary-{secrets.token_urlsafe(30)}", f'pä$$ "{secrets.token_hex(12)}"/\\{secrets.token_urlsafe(9)}`é\'+ {secrets.token_hex(8)}',
            "-----BEGIN KEY-----\n" + "\n".join(secrets.token_urlsafe(36) for _ in range(3)) + "\n-----END KEY-----\n"]


def none(values, texts):
    found = leaks(values, texts)
    assert not found, f"{len(found)} leaks:\n" + "\n".join(found[:40])


NAMES = ["CANARY", "AWKWARD", "PEM_KEY"]


def test_nothing_leaks(new_server, values):
    instance = new_server(log_level="debug")
    client = instance.client(agent="canary-agent")
    seen = Seen()
    for name, value in zip(NAMES, values):
        seen.add("PUT", put(instance, name, value))
    goal = "a box that uses " + f"{values[0]} and {values[2]}"
    started = seen.tool(client, "sandbox_start", {"goal": goal[:500], "name": values[0][:60], "secrets": [NAMES[0], NAMES[2]]})
    box = started.data["id"]
    assert "[secret CANARY]" in started.data["goal"]
    seen.tool(client, "sandbox_secrets", {"id": box, "names": [NAMES[1]]})
    use(seen, client, box, NAMES, values)
    look(seen, instance, client, box)
    # After a restart, and with other values under the same names, or none: the box still has the old ones.
    instance.stop()
    instance.start()
    client = instance.client(agent="canary-agent")
    fresh = [secrets.token_urlsafe(30) for _ in range(2)]
    put(instance, NAMES[0], fresh[0])
    assert rest(instance, "DELETE", f"/v1/secrets/{NAMES[1]}")[0] == 204
    use(seen, client, box, NAMES, values)
    seen.tool(client, "sandbox_secrets", {"id": box, "names": [NAMES[0]]})
    use(seen, client, box, NAMES[:1], fresh[:1])
    use(seen, client, box, NAMES[1:], values[1:])
    seen.tool(client, "sandbox_exec", {"id": box, "cmd": command("CANARY", 'echo "$V"') + f"; echo '{values[0]}'", "note": "old and new"})
    seen.tool(client, "sandbox_exec", {"id": box, "cmd": command("CANARY", f'mkdir -p "/work/{values[0]}" && echo > "/work/{values[0]}/{values[0]}x"'), "note": "names"})
    look(seen, instance, client, box)
    everything = values + fresh[:1]
    none(everything, seen.texts)
    none(everything, kept(instance))
    stopped = seen.tool(client, "sandbox_stop", {"id": box})
    assert any("[secret CANARY]" in json.dumps(entry) for entry in stopped.data["unsavedWork"]), stopped.data
    look(seen, instance, client, box)
    none(everything, seen.texts)
    none(everything, kept(instance))
    assert sum(b"[secret CANARY]" in text for _, text in seen.texts) > 20 and b"[secret PEM_KEY]" in dict(kept(instance))[str(instance.state / "state.db")] + \
        dict(kept(instance)).get(str(instance.state / "state.db-wal"), b"")


def test_the_search_finds_what_is_there(new_server, values):
    """The same in a box that was not given the secrets, where nothing is masked."""
    instance = new_server()
    client = instance.client()
    for name, value in zip(NAMES, values):
        put(instance, name, value)
    box = client.start()
    for value in values:
        seen = Seen()
        quoted = "'" + value.replace("'", "'\\''") + "'"
        seen.tool(client, "sandbox_exec", {"id": box, "cmd": f"export V={quoted}; printf %s \"$V\" | base64 -w0; {MUCH}", "note": "print it"})
        where = {found.split(":")[0] for found in leaks([value], seen.texts)}
        assert where == {"sandbox_exec", "sandbox_exec outputUrl", "sandbox_exec stderrUrl"}
        found = leaks([value], kept(instance))
        assert any("state.db" in place for place in found) and any("objects/" in place for place in found)
    (instance.state / "planted").write_bytes(b"xx" + values[0].encode()[5:25] + b"yy")
    with open(instance.log, "a") as log:
        log.write(values[1])
    found = leaks(values, kept(instance))
    assert any("/planted" in place for place in found) and any(place.startswith(str(instance.log)) for place in found)


def test_a_command_that_outlives_its_call(server, values):
    """Answered while it runs, and its whole result later: both are masked, also where the answer cuts a value."""
    seen, client = Seen(), server.client(agent="impatient")
    put(server, "CANARY", values[0])
    box = client.start(secrets=["CANARY"])
    cmd = command("CANARY", 'printf "%s" "$V"; printf "%s" "${V:0:20}"; until [ -e /work/go ]; do sleep 0.05; done; printf "%s" "${V:20}"; ' + MUCH)
    answer = client.tool("sandbox_exec", {"id": box, "cmd": cmd, "note": "goes on"}, headers={"X-Psbx-Tool-Wait-Sec": "3"})
    seen.add("exec", answer.data)
    assert answer.data["running"] and "[secret CANARY]" in answer.data["stdout"]
    seen.tool(client, "sandbox_exec", {"id": box, "cmd": "touch go", "note": "let it"})
    until(lambda: not seen.tool(client, "sandbox_procs", {"id": box, "action": "wait", "bgId": answer.data["bgId"], "timeoutSec": 5}).data["running"])
    none(values[:1], seen.texts)
    none(values[:1], kept(server))
    client.stop(box)
