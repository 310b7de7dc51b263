#!/usr/bin/env bash
# Runs all tests of a build folder and ends with one summary: passed, failed, skipped and which.
#   tools/test.sh [BUILD_FOLDER [CTEST_ARGUMENT…]]
set -uo pipefail
cd "$(dirname "$0")/.."
build=$(realpath "${1:-build}")
# A folder of this run alone, since CTest writes where it runs and the build may be in use.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
printf 'subdirs("%s")\n' "$build" >"$work/CTestTestfile.cmake"

# What tests compare with is English, whatever the locale is.
export DANLU_LANG=${DANLU_LANG:-en}
# What the program sets for itself: idle threads of libgomp and OpenBLAS sleep instead of spinning.
export GOMP_SPINCOUNT=${GOMP_SPINCOUNT:-1000} OPENBLAS_THREAD_TIMEOUT=${OPENBLAS_THREAD_TIMEOUT:-4}

# Of a group that failed, only the tests that did not pass: whoever sees the beginning alone sees the fault.
# (Not awk, which reads ahead: what runs is seen at once.)
without_passed() {
  local line held='' in_test=''
  while IFS= read -r line; do
    case $line in
      '[ RUN      ]'*) printf '%s' "$held"; held=$line$'\n'; in_test=1 ;;
      '[       OK ]'*) held=''; in_test='' ;;
      '[----------]'* | '') ;;
      *)
        held+=$line$'\n'
        if [ -z "$in_test" ] || [[ $line == '[  FAILED  ]'* ]]; then
          printf '%s' "$held"
          held='' in_test=''
        fi
        ;;
    esac
  done
  printf '%s' "$held"
}
# One more at once than there are processors, since some wait: for a timeout, a disk, other ranks.
GTEST_OUTPUT="xml:$work/results/" ctest --test-dir "$work" --output-on-failure -j$(($(nproc) + 1)) "${@:2}" | without_passed
code=${PIPESTATUS[0]}

# GoogleTest's reports: one <testcase …> line each; a skipped one names its reason on the next line.
find "$work/results" -name '*.xml' -print0 | sort -z | xargs -0 -r awk '
  function attribute(name,  at, rest) {
    at = index($0, " " name "=\"")
    if (!at) return ""
    rest = substr($0, at + length(name) + 3)
    return substr(rest, 1, index(rest, "\"") - 1)
  }
  function unescape(text) {
    gsub(/&quot;/, "\"", text); gsub(/&#x0A;.*/, "", text); gsub(/&apos;/, "\x27", text)
    gsub(/&lt;/, "<", text); gsub(/&gt;/, ">", text); gsub(/&amp;/, "\\&", text)
    return text
  }
  /<testcase / {
    test = attribute("classname") "." attribute("name")
    result = attribute("result")
    if (result == "skipped") skipped[++num_skipped] = test
    else if (result == "completed") ++num_run
    seconds[test] += attribute("time")
  }
  /<skipped / { reason[num_skipped] = unescape(attribute("message")) }
  /<failure / { if (!(test in failed)) { failed[test] = 1; ++num_failed } }
  END {
    for (place = 1; place <= 12; ++place) {
      slowest = ""
      for (test in seconds) if (slowest == "" || seconds[test] > seconds[slowest]) slowest = test
      if (slowest == "" || seconds[slowest] < 10) break
      printf "%s  slow     %s: %.0f s\n", place == 1 ? "\n" : "", slowest, seconds[slowest]
      delete seconds[slowest]
    }
    printf "\ntests: %d passed, %d failed, %d skipped\n", num_run - num_failed, num_failed, num_skipped
    for (test in failed) print "  failed   " test
    for (i = 1; i <= num_skipped; ++i) {
      if (reason[i] ~ /^slow;/) { ++num_slow; continue }
      printf "  skipped  %s%s\n", skipped[i], reason[i] == "" ? "" : ": " reason[i]
    }
    if (num_slow) printf "  skipped  %d that are slow; DANLU_SLOW=1 runs them\n", num_slow
  }'
# A program that died left no report: its tests are in none of the counts above.
if [ "$code" != 0 ]; then
  sed 's/^[0-9]*:/  program failed  /' "$work/Testing/Temporary/LastTestsFailed.log"
fi
exit $code
