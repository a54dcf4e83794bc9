#!/usr/bin/env bash
# cppcheck over src/; what it may not say, with the reasons, is in test/check/cppcheck-suppressions.txt.
set -euo pipefail
cd "$(dirname "$0")/../.."
# The same goes for cppcheck: what it may not say was settled with one release.
have=$(cppcheck --version | cut -d' ' -f2)
case $have in 2.10*) ;; *)
        echo "the suppressions are those of cppcheck 2.10 (Debian 12); here is $have"
        exit 77
        ;;
esac
mkdir -p build/cppcheck
exec cppcheck --quiet --error-exitcode=1 --inline-suppr --std=c11 --platform=unix64 \
        --enable=warning,performance,portability --cppcheck-build-dir=build/cppcheck -j "${JOBS:-2}" \
        --suppressions-list=test/check/cppcheck-suppressions.txt -D_GNU_SOURCE -D__linux__ -D__x86_64__ \
        '-DPSBX_VERSION="0"' -I src src
