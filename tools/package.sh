#!/usr/bin/env bash
# Makes from a build folder, in BUILD/package, Debian's package (for the Debian that this runs on) and an
# archive that needs no package: it holds every shared library but glibc's own, and runs where it is unpacked
# on a Linux whose glibc is at least as new as this one's.
#   tools/package.sh [BUILD_FOLDER]
set -euo pipefail
cd "$(dirname "$0")/.."
build=$(realpath "${1:-build}")
out=$build/package

fail() {
  printf 'package: %s\n' "$1" >&2
  exit 1
}

# Name and file of every library that the programs and libraries under $1 need, those under $1 left out. FFmpeg's
# are not copied: whoever has videos installs them.
needed_libraries() {
  find "$1/bin" "$1/lib" -type f ! -name libdanlu_video.so -exec ldd {} + >"$work/ldd"
  ! grep 'not found' "$work/ldd" || fail 'a library is missing on this machine'
  awk -v own="$1/" '$2 == "=>" && index($3, "/") == 1 && index($3, own) != 1 {print $1, $3}' "$work/ldd" | sort -u
}

# Reads "name file"; prints "name realfile package", the package "?" where the file is of none.
with_packages() {
  local name file
  while read -r name file; do echo "$name $(realpath "$file")"; done >"$work/real"
  # Debian's records may know a file by its place before /lib and /usr/lib became one.
  awk '{print $2; sub("^/usr", "", $2); print $2}' "$work/real" | { xargs dpkg-query -S 2>/dev/null || true; } |
    awk 'NR == FNR {sub("^/usr", "", $2); sub(":.*", "", $1); of[$2] = $1; next}
         {file = $2; sub("^/usr", "", file); print $1, $2, file in of ? of[file] : "?"}' - "$work/real"
}

# Copies the libraries of $1 beside ours, with their licences and where their sources are.
add_libraries() {
  local tree=$1 lib=$1/lib/danlu doc=$1/share/doc/danlu glibc name file package
  glibc=$(dpkg-query -S '*/libc.so.6' | sed -n '1s/:.*//p')
  mkdir -p "$doc/licenses/common-licenses"
  cp -L /usr/share/common-licenses/* "$doc/licenses/common-licenses"
  needed_libraries "$tree" | with_packages >"$work/libraries"
  while read -r name file package; do
    [ "$package" != "$glibc" ] || continue
    [ "$package" != '?' ] || fail "$file is not of a Debian package: its licence is not known"
    install -m 644 "$file" "$lib/$name"
    [ -e "$doc/licenses/$package" ] || cp -L "/usr/share/doc/$package/copyright" "$doc/licenses/$package" ||
      fail "$package has no licence text"
    echo "$package"
  done <"$work/libraries" | sort -u >"$work/packages"
  {
    echo "# Debian's packages that the libraries here are from: package, version, source, its version."
    echo "# The sources are in Debian's archive of snapshots, by source and version."
    xargs dpkg-query -W -f '${Package} ${Version} ${source:Package} ${source:Version}\n' <"$work/packages" | sort -u
  } >"$doc/licenses/SOURCES"
}

[ -e "$build/libduckdb.so" ] || fail "no libduckdb.so in $build: make deps"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
rm -rf "$out"
mkdir "$out"

(cd "$build" && cpack -G DEB) >"$work/log" 2>&1 || { cat "$work/log" >&2; fail 'cpack'; }
rm -rf "$out/_CPack_Packages"

version=$("$build/danlu" --version | cut -d' ' -f2)
name=danlu-$version-$(uname -m)
cmake --install "$build" --strip --prefix "$work/$name" >"$work/log" || { cat "$work/log" >&2; fail 'cmake --install'; }
add_libraries "$work/$name"
# gzip: every Debian has it, which is not so of xz.
tar -C "$work" --sort=name --owner=0 --group=0 --numeric-owner -cf - "$name" | gzip -6 >"$out/$name.tar.gz"

du -h "$out"/*
