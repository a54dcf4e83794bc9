#!/usr/bin/env bash
# Runs every fuzz target for so many seconds, starting from its corpus in test/fuzz/corpus/NAME. New inputs that reach
# new code stay in build/fuzz/corpus; what crashes is kept in build/fuzz/found and named.
#   scripts/fuzz.sh SECONDS [TARGET...]
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}
shift || true
if [ ! -f build/fuzz/build.ninja ]; then
        CC=clang meson setup build/fuzz -Dfuzzers=true -Db_sanitize=address,undefined -Dc_args=-fsanitize=fuzzer-no-link -Dwerror_all=false >build/fuzz.log 2>&1 || {
                cat build/fuzz.log
                exit 1
        }
fi
ninja -C build/fuzz --quiet
export ASAN_OPTIONS=halt_on_error=1:detect_leaks=1 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
mkdir -p build/fuzz/found
passed=0
failed=0
for target in build/fuzz/test/fuzz/fuzz-*; do
        [ -f "$target" ] && [ -x "$target" ] || continue
        name=${target##*/fuzz-}
        case $name in *-replay) continue ;; esac
        if [ $# -gt 0 ] && [[ " $* " != *" $name "* ]]; then continue; fi
        seeds=test/fuzz/corpus/$name
        work=build/fuzz/corpus/$name
        mkdir -p "$work"
        dictionary=()
        [ ! -f "test/fuzz/$name.dict" ] || dictionary=("-dict=test/fuzz/$name.dict")
        [ -d "$seeds" ] || seeds=
        echo "== $name: $seconds s"
        if "$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=0 -verbosity=0 \
                -artifact_prefix="build/fuzz/found/$name-" "${dictionary[@]}" "$work" ${seeds:+"$seeds"}; then
                passed=$((passed + 1))
        else
                echo "FAILED  $name: see build/fuzz/found"
                failed=$((failed + 1))
        fi
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
