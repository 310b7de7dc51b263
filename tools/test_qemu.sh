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
limit_s=1200  # each takes about a minute where nothing else runs

if [ "$(uname -m)" != x86_64 ] || ! command -v qemu-x86_64 >/dev/null; then
  echo "processors: 0 ok, 0 failed, ${#processors[@]} not run (${processors[*]}): no x86-64 or no qemu-user (tools/deps.sh --slow)"
  exit 0
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
failed=0
ulimit -c 0
for processor in "${processors[@]}"; do
  {
    OMP_NUM_THREADS=1 GOMP_SPINCOUNT=1000 timeout "$limit_s" \
      qemu-x86_64 -cpu "$processor" "$program" --gtest_filter="${2:-*}" >"$log" 2>&1
    code=$?
  } 2>/dev/null  # the shell's own word on a program that a signal ended
  case $code in
    0 | 1) end= ;;
    124) end=", not done after $limit_s s" ;;
    *) end=", $(sed -n 's/.*uncaught target signal [0-9]* (\([^)]*\)).*/\1/p' "$log" | tail -n 1)" ;;
  esac
  # What was begun last is where it died.
  [ -z "$end" ] || end+=" in $(sed -n 's/^\[ RUN      \] //p' "$log" | tail -n 1)"
  [ $code = 0 ] && verdict=ok || { verdict=FAILED; failed=$((failed + 1)); }
  printf '%-8s %s: %d tests passed, %d failed%s\n' "$processor" $verdict \
    "$(grep -c '^\[       OK \]' "$log")" "$(grep -c '^\[  FAILED  \].* ms)$' "$log")" "$end"
  grep -E '^\[  FAILED  \].* ms\)$' "$log" | sed 's/^\[  FAILED  \]/  failed /'
done
printf 'processors: %d ok, %d failed, 0 not run\n' $((${#processors[@]} - failed)) $failed
[ $failed = 0 ]
