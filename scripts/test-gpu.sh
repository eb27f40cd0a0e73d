#!/usr/bin/env bash
# The GPU backend's tests on Mesa's software Vulkan, with subgroups of 8 (and cooperative matrices) and of 16, and a look at
# what every kernel becomes in Metal's language.
#
# What cannot be had is told of, and is no failure.
set -euo pipefail
cd "$(dirname "$0")/.."

log="$(mktemp)"
trap 'rm -f "$log"' EXIT
# With this set, a test without its compiler is a failure.
if clang="$(scripts/setup-clang.sh 2>"$log")"; then
  export NIBBLE_CLANG="$clang"
else
  echo "SKIPPED: Metal's language: $(tail -n 1 "$log")"
fi
if ! run="$(scripts/setup-lavapipe.sh 2>"$log")"; then
  cat "$log" >&2
  echo "SKIPPED: gpu: $(tail -n 1 "$log")"
  cargo test -p nibble-backend-wgpu --lib
  exit 0
fi
cat "$log" >&2

# Programs start through the loader that Mesa's C library needs; and now a missing GPU is a failure.
export CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER="$run" NIBBLE_TEST_GPU=required
echo "--- subgroups of 8"
cargo test -p nibble-backend-wgpu
echo "--- subgroups of 16"
LP_NATIVE_VECTOR_WIDTH=512 cargo test -p nibble-backend-wgpu --test ops
