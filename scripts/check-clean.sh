#!/usr/bin/env bash
# Proves the commands on fresh systems: for each Debian release, a new root made with mmdebstrap that holds nothing
# but a base system and make; in it `make up`, `make down` and `make test` of this tree (with what is not committed yet).
# So no install step can be missing. Needs root. Everything happens in private mount and pid namespaces; nothing stays.
#   scripts/check-clean.sh [--keep] [--only-up] SUITE...        (bookworm is Debian 12, trixie is 13)
set -euo pipefail

top=$(cd "$(dirname "$0")/.." && pwd)
keep=
only_up=
while [ "${1:-}" = --keep ] || [ "${1:-}" = --only-up ]; do
        if [ "$1" = --keep ]; then keep=1; else only_up=1; fi
        shift
done
[ $# -gt 0 ] || {
        echo "usage: $0 [--keep] [--only-up] SUITE..." >&2
        exit 2
}
[ "$(id -u)" = 0 ] || {
        echo "check-clean makes whole systems: run it as root" >&2
        exit 1
}

# The mirror is the one that this machine's apt uses: the first with Debian's own label, and the security one.
mirror_of() {
        apt-get indextargets --format '$(LABEL)|$(REPO_URI)' 'Created-By: Packages' |
                awk -F'|' -v label="$1" '$1 == label { sub("/$", "", $2); print $2; exit }'
}
main_mirror=$(mirror_of Debian)
security_mirror=$(mirror_of Debian-Security)
[ -n "$main_mirror" ] || {
        echo "this machine's apt has no Debian mirror: nothing to make a root from" >&2
        exit 1
}

# What a machine behind a proxy or with a certificate authority of its own needs in the root as well.
outside=()
for name in http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY; do
        [ -z "${!name:-}" ] || outside+=("$name=${!name}")
done
if command -v npm >/dev/null 2>&1; then
        outside+=("npm_config_registry=$(npm config get registry)")
fi
bundle=${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}

base=$(mktemp -d "${PSBX_CLEAN_DIR:-/var/tmp}/psbx-clean.XXXXXX")
cleanup() {
        if [ -z "$keep" ]; then
                rm -rf --one-file-system "$base"
        else
                echo "kept: $base"
        fi
}
trap cleanup EXIT

passed=0
failed=0
skipped=0
for suite in "$@"; do
        root=$base/$suite
        echo "== $suite: making the root"
        sources=("deb $main_mirror $suite main" "deb $main_mirror $suite-updates main")
        [ -z "$security_mirror" ] || sources+=("deb $security_mirror $suite-security main")
        if ! printf '%s\n' "${sources[@]}" | mmdebstrap --quiet --mode=root --variant=minbase --include=make \
                --aptopt='Acquire::Check-Valid-Until "false"' "$suite" "$root" - >"$base/$suite.log" 2>&1; then
                tail -n 5 "$base/$suite.log"
                echo "SKIPPED $suite: this machine's mirror does not have it"
                skipped=$((skipped + 1))
                rm -rf --one-file-system "$root"
                continue
        fi
        mkdir -p "$root/src/main" "$root/etc/psbx-clean"
        (cd "$top" && git ls-files -z -co --exclude-standard | tar --null -T - -cf - --ignore-failed-read) | tar -xf - -C "$root/src/main"
        git -C "$root/src/main" init -q -b main
        git -C "$root/src/main" add -A
        git -C "$root/src/main" -c user.name=check -c user.email=check@localhost commit -q -m "the tree under test"
        if [ -d "${PSBX_SHARED:-$top/../shared}/probes" ]; then
                mkdir -p "$root/src/shared"
                cp -r "${PSBX_SHARED:-$top/../shared}/probes" "$root/src/shared/"
        fi
        [ ! -f "$bundle" ] || cp "$bundle" "$root/etc/psbx-clean/ca.pem"
        cp /etc/resolv.conf "$root/etc/resolv.conf" 2>/dev/null || true
        hostname >"$root/etc/hostname"
        printf '127.0.0.1 localhost %s\n::1 localhost\n' "$(hostname)" >"$root/etc/hosts"
        cat >"$root/etc/psbx-clean/run" <<'INSIDE'
set -euo pipefail
cd /src/main
git config --global --add safe.directory /src/main 2>/dev/null || true
echo "-- make up"
make up
echo "-- make down"
make down
if [ -n "${ONLY_UP:-}" ]; then exit 0; fi
echo "-- make test"
make test
INSIDE
        echo "== $suite: make up, make down, make test"
        if unshare --mount --pid --ipc --uts --fork --kill-child --propagation private bash -euo pipefail -c '
                root=$1
                shift
                mount --bind "$root" "$root"
                mkdir -p "$root/proc" "$root/sys" "$root/dev"
                mount -t proc proc "$root/proc"
                mount --rbind /sys "$root/sys"
                mount --rbind /dev "$root/dev"
                mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
                mount -t tmpfs -o mode=0755 tmpfs "$root/run"
                # Not chroot alone: the kernel gives no user namespaces to a process that is in one.
                cd "$root"
                mkdir -p .outside
                pivot_root . .outside
                exec chroot . /usr/bin/env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
                        LANG=C.UTF-8 CI=true NODE_EXTRA_CA_CERTS=/etc/psbx-clean/ca.pem npm_config_cafile=/etc/psbx-clean/ca.pem \
                        "$@" bash -euo pipefail -c "umount -l /.outside; rmdir /.outside; exec bash /etc/psbx-clean/run"' bash "$root" "${outside[@]}" ${only_up:+ONLY_UP=1} </dev/null; then
                echo "PASSED  $suite"
                passed=$((passed + 1))
        else
                echo "FAILED  $suite"
                failed=$((failed + 1))
        fi
        [ -n "$keep" ] || rm -rf --one-file-system "$root"
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
