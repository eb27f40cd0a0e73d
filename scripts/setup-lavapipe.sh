#!/usr/bin/env bash
# Mesa's software Vulkan, lavapipe, for the GPU backend's tests: prints the path of a program that runs another one with it.
# Quick when it is there; ends with a sentence and status 1 when it cannot be had.
#
# It comes from Debian into a cache folder (NIBBLE_CACHE, or `cross` in cargo's target folder) with the C library that it was
# built for, and nothing is installed. Mesa 26 has cooperative matrices; if Debian no longer has the version that was
# tested, its newest is taken, and then the one of the stable release, which has none.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/debian.sh

tested='26.1.6-1~bpo13+1'
packages=(libvulkan1 libstdc++6 libgcc-s1 libc6)

cache="${NIBBLE_CACHE:-${CARGO_TARGET_DIR:-target}/cross}"
mkdir -p "$cache"
cache="$(cd "$cache" && pwd)"
folder="$cache/lavapipe-${tested%%-*}"

# fetch SUITE... -- PACKAGE...: downloads the packages and all that they need.
fetch() {
  local suites=()
  while [ "$1" != -- ]; do suites+=("$1") && shift; done
  shift
  rm -rf "$cache/apt-lavapipe"
  (
    debian_apt "$cache/apt-lavapipe" "${suites[@]}"
    apt-get -qq update && apt-get -qq --no-install-recommends -t "${suites[-1]}" --download-only install -y "$@"
  ) >&2
}

download() {
  [ "$(uname -m)" = x86_64 ] || fail "lavapipe is set up for x86-64 alone"
  fetch trixie trixie-backports -- "mesa-vulkan-drivers=$tested" "${packages[@]}" ||
    { echo "lavapipe: no Mesa $tested any more, trying the newest" >&2 &&
      fetch trixie trixie-backports -- mesa-vulkan-drivers "${packages[@]}"; } ||
    { echo "lavapipe: no Mesa from backports, trying the stable one, which has no matrices" >&2 &&
      fetch trixie -- mesa-vulkan-drivers "${packages[@]}"; } ||
    fail "apt could not get mesa-vulkan-drivers"
  rm -rf "$folder.part"
  for package in "$cache"/apt-lavapipe/archives/*.deb; do dpkg -x "$package" "$folder.part"; done
  local lib="usr/lib/x86_64-linux-gnu"
  cat >"$folder.part/lavapipe.json" <<JSON
{"file_format_version": "1.0.1", "ICD": {"library_path": "$folder/$lib/libvulkan_lvp.so", "api_version": "1.4.0"}}
JSON
  # Its C library may be newer than the system's, so programs start through its own loader.
  local loader="$(cd "$folder.part" && find . -name 'ld-linux-x86-64.so.2' | head -n 1)"
  [ -n "$loader" ] && [ -e "$folder.part/$lib/libvulkan_lvp.so" ] || fail "the packages hold no lavapipe"
  cat >"$folder.part/run" <<RUN
#!/bin/sh
export VK_DRIVER_FILES="$folder/lavapipe.json"
exec "$folder/$loader" --library-path "$folder/$lib:$folder/lib/x86_64-linux-gnu" "\$@"
RUN
  chmod +x "$folder.part/run"
  rm -rf "$folder" "$cache/apt-lavapipe"
  mv "$folder.part" "$folder"
}

# Another run beside this one must find all or nothing.
exec 9>"$cache/lock"
flock 9
[ -x "$folder/run" ] || download
echo "$folder/run"
