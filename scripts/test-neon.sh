#!/usr/bin/env bash
# The CPU backend's tests on aarch64 under an emulator: on a processor with every extension and on one with none, so that
# the fallback runs too. Then the command is type-checked for a Mac.
#
# Where the tools cannot be had it says so and succeeds.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ "$(uname -m)" = aarch64 ] || [ "$(uname -m)" = arm64 ]; then
  echo "SKIPPED: neon: this machine runs these kernels itself"
  exit 0
fi
log="$(mktemp)"
trap 'rm -f "$log"' EXIT
if ! std="$(scripts/setup-cross.sh 2>"$log")"; then
  cat "$log" >&2
  echo "SKIPPED: neon: $(tail -n 1 "$log")"
  exit 0
fi

# Only here: with these a stable compiler builds std, and accepts unstable features.
export RUSTC_BOOTSTRAP=1 __CARGO_TESTS_ONLY_SRC_ROOT="$std"
# A folder of its own, as the first of them makes cargo build again what it has built without.
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/aarch64"

test_on() {
  local processor="$1" isa="$2"
  echo "--- aarch64, $processor: $isa"
  CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc \
    CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="qemu-aarch64 -cpu $processor -L /usr/aarch64-linux-gnu" \
    NIBBLE_TEST_ISA="$isa" \
    cargo test -Zbuild-std --target aarch64-unknown-linux-gnu -p nibble-backend-cpu --lib
}

test_on max neon-i8mm
test_on cortex-a57 scalar
echo "--- aarch64-apple-darwin: type check"
cargo check -Zbuild-std --target aarch64-apple-darwin -p nibble-cli
