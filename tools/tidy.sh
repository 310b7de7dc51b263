#!/usr/bin/env bash
# clang-tidy (.clang-tidy) over sources that include no torch, or over the folders named.
set -euo pipefail
cd "$(dirname "$0")/.."
folders=("$@")
[ ${#folders[@]} -gt 0 ] || folders=(src/base src/text src/data src/arch src/weights src/cli/commands)
cmake -S . -B build-tidy -G Ninja -DCMAKE_BUILD_TYPE=Debug -DDANLU_ENGINE=OFF -DDANLU_TESTS=OFF -DCMAKE_UNITY_BUILD=OFF \
  -DCMAKE_CXX_COMPILER=clang++-19 -DCMAKE_C_COMPILER=clang-19 >/dev/null
find "${folders[@]}" -name '*.cpp' -print0 | sort -z |
  xargs -0 -r -n 4 -P "$(nproc)" clang-tidy-19 -p build-tidy --quiet
