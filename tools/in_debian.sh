#!/usr/bin/env bash
# Runs a command on a clone of this checkout's last commit inside a Debian of its own, so that the machine's packages do not count.
#   tools/in_debian.sh 12|13 COMMAND…     e.g. tools/in_debian.sh 13 make test
# Needs root and debootstrap; downloads. The root and what was built in it stay for the next run, in
# $DANLU_ROOTS (else /var/tmp/danlu-roots); DANLU_FRESH=1 begins again. ../shared is there, read-only, when it is here.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() {
  printf 'in_debian: %s\n' "$1" >&2
  exit 2
}

case ${1:-} in
  12) suite=bookworm ;;
  13) suite=trixie ;;
  *) fail "which Debian? tools/in_debian.sh 12|13 COMMAND…" ;;
esac
[ $# -ge 2 ] || fail "no command, e.g. tools/in_debian.sh $1 make test"
[ "$(id -u)" = 0 ] || fail "only root may make a root of its own: sudo $0 $*"
command -v debootstrap >/dev/null || fail "debootstrap is missing: apt-get install debootstrap"
git diff --quiet HEAD || echo 'in_debian: what is not committed is not part of the clone' >&2

root=${DANLU_ROOTS:-/var/tmp/danlu-roots}/debian-$1
[ "${DANLU_FRESH:-}" != 1 ] || rm -rf "$root"
if [ ! -e "$root/etc/danlu-root" ]; then
  rm -rf "$root"
  mkdir -p "$root"
  debootstrap --variant=minbase --include=ca-certificates,git,make "$suite" "$root" >"$root.log" 2>&1 ||
    fail "debootstrap failed: $root.log"
  touch "$root/etc/danlu-root"
fi

mkdir -p "$root/src/danlu"
[ -e "$root/src/danlu/.git" ] || git -C "$root/src/danlu" init -q
git -C "$root/src/danlu" fetch -q "$PWD" HEAD
git -C "$root/src/danlu" checkout -q --force --detach FETCH_HEAD
git -C "$root/src/danlu" clean -q -d --force
cp /etc/resolv.conf "$root/etc/resolv.conf"
# Whom this machine trusts (a company's certificate, say), the root trusts.
certificates=/usr/local/share/ca-certificates
if compgen -G "$certificates/*.crt" >/dev/null; then
  cp "$certificates"/*.crt "$root$certificates/"
  chroot "$root" update-ca-certificates >/dev/null 2>&1
fi

# Mounts end with the name space, whatever the command does.
export root shared
shared=$(realpath -q ../shared || true)
exec unshare --mount --pid --fork --kill-child bash -euo pipefail -c '
  mount -t proc proc "$root/proc"
  mount --rbind /dev "$root/dev"
  mount --rbind /sys "$root/sys"
  if [ -d "$shared" ]; then
    mkdir -p "$root/src/shared"
    mount --bind -o ro "$shared" "$root/src/shared"
  fi
  exec chroot "$root" /usr/bin/env -i HOME=/root TERM=dumb LANG=C.UTF-8 JOBS="${JOBS:-$(nproc)}" CI="${CI:-}" \
    PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    NODE_EXTRA_CA_CERTS=/etc/ssl/certs/ca-certificates.crt ${http_proxy:+http_proxy="$http_proxy"} ${https_proxy:+https_proxy="$https_proxy"} \
    bash -c '\''cd /src/danlu && exec "$@"'\'' in_debian "$@"
' in_debian "${@:2}"
