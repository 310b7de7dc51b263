#!/usr/bin/env bash
# Configures a preset and builds targets of it; first says how much there is to compile and how long it takes.
#   tools/build.sh BUILD_FOLDER PRESET [TARGET…]      JOBS=N: at once (one for each processor)
set -euo pipefail
cd "$(dirname "$0")/.."
build=$1 preset=$2 targets=("${@:3}")
jobs=${JOBS:-$(nproc)}
unit_s=15 # of one processor, on average; a recent one needs two thirds of it

cmake --preset "$preset"
# Only what was never compiled can be told beforehand; what has changed since is on top.
mapfile -t objects < <(ninja -C "$build" -t commands "${targets[@]}" | sed -n 's/.* -o \([^ ]*\.o\) -c .*/\1/p')
missing=0
for object in "${objects[@]}"; do
  [ -e "$build/$object" ] || missing=$((missing + 1))
done
if [ $missing -gt 0 ]; then
  printf 'build: %s: %d of %d units to compile, %d at a time: about %d min on %d quiet processors (less what ccache knows)\n' \
    "${targets[*]}" $missing ${#objects[@]} "$jobs" $((missing * unit_s / (60 * jobs) + 1)) "$jobs"
fi
cmake --build --preset "$preset" -j "$jobs" --target "${targets[@]}"
