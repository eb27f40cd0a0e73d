#!/usr/bin/env bash
# The compiler that looks at what the GPU's kernels become in Metal's language: prints its name. Any clang of 14 or newer will
# do; where there is none it is installed, a package of the system (Debian). Ends with a sentence and status 1 when it
# cannot be had.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/debian.sh

find_clang() {
  local name
  for name in clang clang-{19,18,17,16,15,14}; do
    if command -v "$name" >/dev/null; then echo "$name" && return; fi
  done
  return 1
}

install_clang() {
  command -v apt-get >/dev/null || fail "clang is not installed, and there is no apt"
  [ "$(id -u)" -eq 0 ] || fail "clang is not installed, and installing takes root"
  export DEBIAN_FRONTEND=noninteractive
  { apt-get -qq update && apt-get -qq install -y --no-install-recommends clang; } >&2 || fail "apt could not get clang"
}

find_clang || { install_clang && find_clang; } || fail "clang is not there"
