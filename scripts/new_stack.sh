#!/usr/bin/env bash
# Runs a target on the newer stack in a Debian 13 user space: new_stack.sh TARGET [TESTS]...
#
# The user space is built once, in ${STRATEGOS_CACHE:-.cache}/trixie; one run at a time
# uses it. All mounts are in a separate namespace, and end with this script in any case.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
space=${STRATEGOS_CACHE:-$root/.cache}/trixie
checkout=/srv/strategos # Inside the user space.
packages=python3,make,git,tmux,ca-certificates,mariadb-server,curl

skip() {
  echo "skipped test-new-stack: $*"
  exit 0
}

# Builds the user space; renames it to its final name when it is complete.
build() {
  local part=$space.part
  rm -rf --one-file-system "$part" "$space"
  mkdir "$part"
  echo "Building a Debian 13 user space in $space (some minutes, once)"
  if ! unshare --mount debootstrap --variant=minbase --include="$packages" \
    trixie "$part" ${DEBIAN_MIRROR:+"$DEBIAN_MIRROR"} >"$space.log" 2>&1; then
    tail -n 20 "$space.log" >&2
    echo "debootstrap failed; its output is in $space.log" >&2
    exit 1
  fi
  echo "$packages" >"$part/packages"
  mv "$part" "$space"
}

# Copies the host's network configuration: names, certificates, package indexes.
copy_network() {
  cp --dereference /etc/resolv.conf /etc/hosts "$space/etc/"
  local file
  for file in /etc/pip.conf /etc/ssl/certs/ca-certificates.crt \
    "${SSL_CERT_FILE-}" "${PIP_CERT-}" "${PIP_CONFIG_FILE-}"; do
    [[ -f $file ]] && install -D -m 644 "$file" "$space$file"
  done
  for file in "$HOME/.pip/pip.conf" "${XDG_CONFIG_HOME:-$HOME/.config}/pip/pip.conf"; do
    [[ -f $file ]] && install -D -m 644 "$file" "$space/root/.config/pip/pip.conf"
  done
  return 0
}

# Copies the work tree without ignored files; keeps what earlier runs have in the copy.
copy_checkout() {
  mkdir -p "$space$checkout"
  find "$space$checkout" -mindepth 1 -maxdepth 1 \
    ! -name .venv ! -name .cache ! -name .pytest_cache \
    -exec rm -rf --one-file-system {} +
  git -C "$root" ls-files -z --cached --others --exclude-standard |
    tar -C "$root" --null --ignore-failed-read -T - -cf - 2>/dev/null |
    tar -C "$space$checkout" --no-same-owner -xf -
}

# Runs a command in the copied checkout, with the variables of networking and of pytest.
inside() {
  local name variables=()
  for name in $(compgen -e); do
    case $name in
      SSL_CERT_* | PIP_* | UV_*INDEX* | *_proxy | *_PROXY | CI | PYTEST_ADDOPTS | TESTS_*)
        variables+=("$name=${!name}") ;;
    esac
  done
  exec env -i "${variables[@]}" HOME=/root LANG=C.UTF-8 PATH=/usr/sbin:/usr/bin:/sbin:/bin \
    unshare --mount --pid --fork --kill-child bash -euc '
      mount -t proc proc "$1/proc"
      mount --rbind /dev "$1/dev"
      mount --rbind /sys "$1/sys"
      space=$1 checkout=$2
      shift 2
      exec chroot "$space" env -C "$checkout" "$@"
    ' inside "$space" "$checkout" "$@"
}

glibc=$(getconf GNU_LIBC_VERSION 2>/dev/null | cut -d' ' -f2) || skip "this system has no glibc"
if [[ $(printf '%s\n' 2.39 "$glibc" | sort -V | head -n 1) == 2.39 ]]; then
  skip "glibc $glibc is new enough: make test runs on the newer stack already"
fi
[[ $EUID == 0 ]] || skip "a Debian 13 user space needs root"
unshare --mount --pid --fork true 2>/dev/null || skip "namespaces are not allowed"
mkdir -p "$(dirname "$space")"
exec 9>"$space.lock"
flock -n 9 || { echo "Waiting for another run in $space" && flock 9; }
if [[ $(cat "$space/packages" 2>/dev/null) != "$packages" ]]; then
  command -v debootstrap >/dev/null || skip "debootstrap is missing (apt-get install it)"
  build
fi
copy_network
copy_checkout
target=$1
shift
inside make "$target" TESTS="${*:-tests}" ${JOBS:+JOBS="$JOBS"}
