# For tools/test_qemu.sh and tools/arm64.sh, which source it: test programs on processors that this machine is not.
# shellcheck shell=bash

# run_emulated LIMIT_S FILTER RUN… -- EMULATOR…: each RUN, PROCESSOR:PROGRAM, as `EMULATOR… -cpu PROCESSOR PROGRAM`
# with that GoogleTest filter. Prints a line for each and its failed tests. Sets num_failed: of how many runs a test
# failed, or the program itself (it died, or was not done after LIMIT_S seconds).
run_emulated() {
  local limit_s=$1 filter=$2 runs=() run processor program code end verdict
  shift 2
  while [ "$1" != -- ]; do runs+=("$1"); shift; done
  shift
  log=$(mktemp)
  trap 'rm -f "$log"' EXIT
  num_failed=0
  ulimit -c 0
  for run in "${runs[@]}"; do
    processor=${run%%:*} program=${run#*:} verdict=ok
    {
      DANLU_LANG=en OMP_NUM_THREADS=1 GOMP_SPINCOUNT=1000 timeout "$limit_s" \
        "$@" -cpu "$processor" "$program" --gtest_filter="$filter" >"$log" 2>&1
      code=$?
    } 2>/dev/null  # the shell's own word on a program that a signal ended
    case $code in
      0 | 1) end= ;;
      124) end=", not done after $limit_s s" ;;
      *) end=", $(sed -n 's/.*uncaught target signal [0-9]* (\([^)]*\)).*/\1/p' "$log" | tail -n 1)" ;;
    esac
    # What was begun last is where it died.
    [ -z "$end" ] || end+=" in $(sed -n 's/^\[ RUN      \] //p' "$log" | tail -n 1)"
    [ $code = 0 ] || { verdict=FAILED; num_failed=$((num_failed + 1)); }
    printf 'emulated %-10s %-11s %s: %d tests passed, %d failed%s\n' "$processor" "${program##*/}" $verdict \
      "$(grep -c '^\[       OK \]' "$log")" "$(grep -c '^\[  FAILED  \].* ms)$' "$log")" "$end"
    grep -E '^\[  FAILED  \].* ms\)$' "$log" | sed 's/^\[  FAILED  \]/  failed /'
  done
}
