#!/usr/bin/env bash
# All C is formatted as .clang-format says; `make format` does it.
set -euo pipefail
cd "$(dirname "$0")/../.."
git ls-files -z -co --exclude-standard -- '*.c' '*.h' | xargs -0 -r clang-format --dry-run -Werror
