#!/usr/bin/env bash
# Installs what is missing of the given sections of packages.txt (which explains the format).
# Does nothing, and asks no registry anything, when all is there.
#   scripts/install-packages.sh [--check] SECTION...
# --check installs nothing: exit 1 when something is missing.
set -euo pipefail

top=$(cd "$(dirname "$0")/.." && pwd)
list=$top/packages.txt
check=
if [ "${1:-}" = --check ]; then
        check=1
        shift
fi
[ $# -gt 0 ] || {
        echo "usage: $0 [--check] SECTION..." >&2
        exit 2
}

section_lines() {
        awk -v want="[$1]" '/^[ \t]*(#|$)/ { next } /^\[/ { on = ($0 == want); seen = seen || on; next } on { print }
                END { if (!seen) exit 3 }' "$list" || {
                echo "$0: packages.txt has no section [$1]" >&2
                exit 2
        }
}

installed() {
        [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null || true)" = installed ]
}

candidate() {
        local version
        version=$(apt-cache policy "$1" 2>/dev/null | awk '/Candidate:/ { print $2 }')
        [ -n "$version" ] && [ "$version" != "(none)" ]
}

# Sets: names (array), command, reason. The format is in packages.txt.
parse() {
        local line=$1
        reason=
        command=
        case $line in *\?*)
                reason=${line#*\?}
                line=${line%%\?*}
                ;;
        esac
        case $line in *@*)
                command=$(echo "${line#*@}" | tr -d ' ')
                line=${line%%@*}
                ;;
        esac
        read -ra names <<<"${line//|/ }"
}

satisfied() {
        local name
        if [ -n "$command" ] && command -v "$command" >/dev/null 2>&1; then
                return 0
        fi
        for name in "${names[@]}"; do
                installed "$name" && return 0
        done
        return 1
}

missing=()
npm_sections=()
for section in "$@"; do
        case $section in npm-*)
                npm_sections+=("$section")
                continue
                ;;
        esac
        lines=$(section_lines "$section")
        while IFS= read -r line; do
                parse "$line"
                satisfied || missing+=("$line")
        done <<<"$lines"
done

if [ ${#missing[@]} -gt 0 ]; then
        required=
        for line in "${missing[@]}"; do
                parse "$line"
                [ -n "$reason" ] || required+=" ${names[0]}"
        done
        if [ -n "$check" ]; then
                [ -n "$required" ] || exit 0
                echo "missing packages:$required" >&2
                exit 1
        fi
        if ! command -v apt-get >/dev/null 2>&1; then
                echo "This system has no apt-get. These Debian packages, or what they hold, are missing:$required" >&2
                [ -z "$required" ] || exit 1
        fi
        as_root=()
        if [ "$(id -u)" != 0 ]; then
                if command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
                        as_root=(sudo -n)
                elif [ -n "$required" ]; then
                        echo "These packages are missing, and only root can install them. Run once:" >&2
                        echo "  sudo apt-get update && sudo apt-get install --no-install-recommends$required" >&2
                        exit 1
                else
                        missing=()
                fi
        fi
        apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=600)
        # The lists may be old or absent: refresh them once, whoever asks.
        if [ ${#missing[@]} -gt 0 ]; then
                echo "installing what is missing for:" "$@"
                "${apt[@]}" update >/dev/null || echo "apt-get update did not work; going on with the lists that are there" >&2
        fi
        install=()
        absent=()
        for line in "${missing[@]}"; do
                parse "$line"
                found=
                for name in "${names[@]}"; do
                        if candidate "$name"; then
                                found=$name
                                break
                        fi
                done
                if [ -n "$found" ]; then
                        install+=("$found")
                elif [ -n "$reason" ]; then
                        echo "${names[0]}: not in this Debian; $reason"
                else
                        absent+=("${names[0]}")
                fi
        done
        if [ ${#absent[@]} -gt 0 ]; then
                echo "This Debian does not have these packages, and they are needed: ${absent[*]}" >&2
                exit 1
        fi
        if [ ${#install[@]} -gt 0 ]; then
                log=$(mktemp)
                if ! "${apt[@]}" install -y --no-install-recommends "${install[@]}" >"$log" 2>&1; then
                        tail -n 30 "$log" >&2
                        rm -f "$log"
                        echo "apt-get could not install: ${install[*]}" >&2
                        exit 1
                fi
                rm -f "$log"
                echo "installed: ${install[*]}"
        fi
fi

for section in "${npm_sections[@]}"; do
        if [ -n "$check" ]; then
                /usr/bin/python3 "$top/scripts/peers.py" check "$section"
        else
                /usr/bin/python3 "$top/scripts/peers.py" install "$section"
        fi
done
