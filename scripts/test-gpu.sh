#!/usr/bin/env bash
# The GPU backend's tests on Mesa's software Vulkan, with subgroups of 8 (and cooperative matrices) and of 16.
#
# Where it cannot be had it says so and succeeds.
set -euo pipefail
cd "$(dirname "$0")/.."

log="$(mktemp)"
trap 'rm -f "$log"' EXIT
if ! run="$(scripts/setup-lavapipe.sh 2>"$log")"; then
  cat "$log" >&2
  echo "SKIPPED: gpu: $(tail -n 1 "$log")"
  exit 0
fi
cat "$log" >&2

# Programs start through the loader that Mesa's C library needs; and now a missing GPU is a failure.
export CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER="$run" NIBBLE_TEST_GPU=required
echo "--- subgroups of 8"
cargo test -p nibble-backend-wgpu
echo "--- subgroups of 16"
LP_NATIVE_VECTOR_WIDTH=512 cargo test -p nibble-backend-wgpu --test ops
