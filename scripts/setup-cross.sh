#!/usr/bin/env bash
# What is needed to build and run for aarch64 on another machine: std's source of the installed rustc's version, an
# emulator, a linker. Quick when all of it is there; ends with a sentence and status 1 when it cannot be had.
#
# std's source goes to a cache folder (NIBBLE_CACHE, or `cross` in cargo's target folder), whose path is printed in the
# end; nothing is written into the Rust toolchain. The other tools are packages of the system (Debian), installed by apt.
set -euo pipefail
cd "$(dirname "$0")/.."

. scripts/debian.sh

# Versions of Debian's package of std's source, one for each rustc that has been used here.
rust_src_version() {
  case "$1" in
    1.95.0) echo '1.95.0+dfsg1-2~bpo13+1' ;;
    *) return 1 ;;
  esac
}

cache="${NIBBLE_CACHE:-${CARGO_TARGET_DIR:-target}/cross}"
mkdir -p "$cache"
cache="$(cd "$cache" && pwd)"

# Prints the folder of std's source, and leaves it there if it was not.
find_std() {
  local own="$(rustc --print sysroot)/lib/rustlib/src/rust/library"
  local release="$(rustc --version | cut -d' ' -f2)"
  local unpacked="$cache/rust-src-$release"
  local std="$unpacked/usr/src/rustc-$release/library"
  if [ -f "$own/std/Cargo.toml" ]; then
    echo "$own"
  else
    [ -f "$std/std/Cargo.toml" ] || download_std "$release" "$unpacked" >&2
    echo "$std"
  fi
}

# Debian's newer releases have the source; a configuration of our own leaves the system's untouched. The mirror is the
# system's, and the archive's key checks what comes.
download_std() {
  local release="$1" to="$2" version
  version="$(rust_src_version "$release")" || fail "no known package of std's source for rustc $release"
  command -v apt-get >/dev/null || fail "std's source is not installed, and there is no apt"
  local apt="$cache/apt"
  (
    debian_apt "$apt" trixie trixie-backports
    cd "$apt/archives"
    apt-get -qq update && apt-get -qq download "rust-src=$version"
  ) || fail "apt could not get rust-src $version"
  rm -rf "$to.part"
  dpkg -x "$apt"/archives/rust-src_*.deb "$to.part"
  rm -rf "$to"
  mv "$to.part" "$to"
  rm -rf "$apt"
}

install_tools() {
  local missing=()
  command -v qemu-aarch64 >/dev/null || missing+=(qemu-user)
  command -v aarch64-linux-gnu-gcc >/dev/null || missing+=(gcc-aarch64-linux-gnu)
  [ -e /usr/aarch64-linux-gnu/lib/libc.so.6 ] || missing+=(libc6-dev-arm64-cross)
  [ "${#missing[@]}" -gt 0 ] || return 0
  command -v apt-get >/dev/null || fail "${missing[*]} not installed, and there is no apt"
  [ "$(id -u)" -eq 0 ] || fail "${missing[*]} not installed, and installing takes root"
  export DEBIAN_FRONTEND=noninteractive
  # The list of packages may be missing or stale on a fresh machine.
  apt_install "${missing[@]}" || { apt-get -qq update >&2 && apt_install "${missing[@]}"; } ||
    fail "apt could not install ${missing[*]}"
}

# By the release of the system, not by exact version: old ones leave the archive with each security update.
apt_install() {
  apt-get -qq install --no-install-recommends -y -o Dpkg::Use-Pty=0 "$@" >/dev/null
}

# Another run beside this one must find all or nothing.
exec 9>"$cache/lock"
flock 9
install_tools
find_std
