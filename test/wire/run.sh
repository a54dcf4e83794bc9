#!/bin/bash
# Runs the wire scripts (varnishtest) against demo_server. Exit code 77: skipped, with the reason as last line.
#   test/wire/run.sh DEMO_SERVER [SCRIPT.vtc...]
set -euo pipefail
server=${1:?the demo_server program}
shift
here=$(cd "$(dirname "$0")" && pwd)
if ! command -v varnishtest >/dev/null; then
        echo "varnishtest is not installed (Debian package varnish)"
        exit 77
fi
[ $# -gt 0 ] || set -- "$here"/*.vtc
work=$(mktemp -d)
"$server" --head-ms 500 >"$work/port" 2>"$work/log" &
pid=$!
trap 'kill "$pid" 2>/dev/null || true; rm -rf "$work"' EXIT
failed=0
passed=0
for _ in $(seq 100); do
        if [ -s "$work/port" ]; then break; fi
        sleep 0.1
done
for script in "$@"; do
        if TMPDIR=$work varnishtest -t 30 -D "port=$(cat "$work/port")" "$script" >"$work/out" 2>&1; then
                passed=$((passed + 1))
        else
                failed=$((failed + 1))
                echo "FAILED  $script"
                tail -40 "$work/out"
        fi
done
kill "$pid"
ended=0
wait "$pid" || ended=$?
if [ "$ended" -ne 0 ]; then
        echo "FAILED  demo_server ended with $ended"
        cat "$work/log"
        failed=$((failed + 1))
fi
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
