#!/usr/bin/env bash
# What the unit tests cover: one line a file, the least covered first. gcov comes with gcc; nothing else is needed.
set -euo pipefail
cd "$(dirname "$0")/.."
[ -f build/coverage/build.ninja ] || meson setup build/coverage -Db_coverage=true --buildtype=debug >/dev/null
ninja -C build/coverage --quiet
find build/coverage -name '*.gcda' -delete
meson test -C build/coverage --no-rebuild >/dev/null || echo "some tests failed: the figures are of what ran"
find build/coverage/src -name '*.gcda' -print0 | xargs -0 -r gcov -n -r -s "$PWD" 2>/dev/null |
        awk '/^File/ { gsub("\x27", ""); file = $2 } /^Lines executed/ { split($2, a, ":"); sub("%", "", a[2]);
                if (file ~ /^src\//) printf "%6.1f %% of %5d  %s\n", a[2], $4, file }' | sort -n | uniq
