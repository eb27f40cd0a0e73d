#!/usr/bin/env bash
# A Chromium for the test that looks at a page: the system's package (Debian), installed by apt. Its release is the one
# that Debian keeps secure, as older ones are not to be had. Ends with a sentence and status 1 where it cannot be had.
set -euo pipefail

for name in chromium chromium-browser chrome-headless-shell google-chrome; do
  if command -v "$name" >/dev/null; then
    exit 0
  fi
done
command -v apt-get >/dev/null || { echo "no Chromium, and there is no apt to install one" >&2; exit 1; }
[ "$(id -u)" = 0 ] || { echo "no Chromium, and only root can install one" >&2; exit 1; }
export DEBIAN_FRONTEND=noninteractive
install() { timeout 110 apt-get install -y --no-install-recommends chromium fonts-dejavu-core >/dev/null; }
install 2>/dev/null || { timeout 60 apt-get update >/dev/null && install; } || { echo "apt cannot install Chromium" >&2; exit 1; }
