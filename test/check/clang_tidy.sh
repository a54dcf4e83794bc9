#!/usr/bin/env bash
# clang-tidy over all of src/ that is compiled, with the checks that .clang-tidy lists.
set -euo pipefail
cd "$(dirname "$0")/../.."
# Each release has checks of its own: the list in .clang-tidy is curated for one of them.
have=$(clang-tidy --version | grep -oE 'version [0-9]+' | head -n 1 | cut -d' ' -f2)
[ "$have" = 14 ] || {
        echo "the checks are chosen for clang-tidy 14 (Debian 12); here is $have"
        exit 77
}
[ -f build/compile_commands.json ] || {
        echo "nothing is built: run make first"
        exit 1
}
exec /usr/bin/python3 test/check/_clang_tidy.py "${JOBS:-2}"
