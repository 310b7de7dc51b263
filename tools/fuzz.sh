#!/usr/bin/env bash
# Runs every libFuzzer target of a build folder for FUZZ_SECONDS (60) each; stops at the first crash.
# Seeds: fuzz/corpus/<target>/; what a run finds interesting goes to <build>/corpus/<target>/.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build-fuzz}
seconds=${FUZZ_SECONDS:-60}
shopt -s nullglob
targets=("$build"/fuzz_*)
[ ${#targets[@]} -gt 0 ] || { echo "fuzz: no targets in $build" >&2; exit 1; }
for program in "${targets[@]}"; do
  [ -x "$program" ] && [ -f "$program" ] || continue
  name=$(basename "$program")
  mkdir -p "$build/corpus/$name"
  seeds=()
  [ -d "fuzz/corpus/$name" ] && seeds=("fuzz/corpus/$name")
  echo "fuzz: $name for $seconds s"
  "$program" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=0 \
    -verbosity=0 -artifact_prefix="$build/corpus/$name-" "$build/corpus/$name" "${seeds[@]}"
done
echo "fuzz: ${#targets[@]} targets, no crash"
