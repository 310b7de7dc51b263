#!/usr/bin/env bash
# Runs every benchmark program of a build folder; arguments after it go to each of them.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build}
shopt -s nullglob
programs=("$build"/bench_*)
[ ${#programs[@]} -gt 0 ] || { echo "bench: no programs in $build" >&2; exit 1; }
for program in "${programs[@]}"; do
  echo "bench: $(basename "$program")"
  "$program" "${@:2}"
done
