#!/usr/bin/env bash
# clang-tidy over all of src/ that is compiled, with the checks that .clang-tidy lists.
set -euo pipefail
cd "$(dirname "$0")/../.."
[ -f build/compile_commands.json ] || {
        echo "nothing is built: run make first"
        exit 1
}
exec /usr/bin/python3 test/check/_clang_tidy.py "${JOBS:-2}"
