#!/usr/bin/env bash
# The ops suite on processors that this machine is not: on an emulated one without AVX-512, and on one
# without AVX, a program dies of every instruction that it did not ask for. (Forcing a path on a better
# processor does not show that.) Ends with 1 if a processor failed; without qemu all are not run.
#   tools/test_qemu.sh [BUILD_FOLDER [GTEST_FILTER]]
set -uo pipefail
cd "$(dirname "$0")/.."
program=$(realpath "${1:-build}")/test_ops
[ -x "$program" ] || { echo "there is no $program: build it first" >&2; exit 2; }
processors=(Haswell Nehalem)

if [ "$(uname -m)" != x86_64 ] || ! command -v qemu-x86_64 >/dev/null; then
  echo "processors: 0 ok, 0 failed, ${#processors[@]} not run (${processors[*]}): no x86-64 or no qemu-user (tools/deps.sh --slow)"
  exit 0
fi

. tools/emulated.sh
run_emulated 1200 "${2:-*}" "${processors[@]/%/:$program}" -- qemu-x86_64  # each takes about a minute where nothing else runs
printf 'processors: %d ok, %d failed, 0 not run\n' $((${#processors[@]} - num_failed)) $num_failed
[ $num_failed = 0 ]
