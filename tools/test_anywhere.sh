#!/usr/bin/env bash
# The suite where it was not written: each leg runs it under another date, locale, user, … and prints
# one line. Ends with a summary; 1 if a leg failed. A leg that this machine cannot run is named and
# counted as not run.
#   tools/test_anywhere.sh [--leg NAME[,NAME…]] [BUILD_FOLDER [CTEST_ARGUMENT…]]
#   tools/test_anywhere.sh --leg user,home build -R '^(base|text)$'
# Legs:
#   shared      with ../shared, nothing else changed      no-shared   without it
#   date        minutes before another year, zone +14     locale-c    the C locale
#   locale-zh   zh_CN.UTF-8                               threads-1   one thread
#   threads-4   four threads                              twice       two at once in one TMPDIR
#   user        as uid 65534 while this user's runs in the same TMPDIR
#   home        as a user who cannot write his HOME (as root: uid 65534, since no mode binds root)
# In every leg TMPDIR and HOME are new, and must be empty again at the end.
set -uo pipefail
cd "$(dirname "$0")/.."
unset DANLU_SLOW

all_legs=(shared no-shared date locale-c locale-zh threads-1 threads-4 twice user home)
legs=("${all_legs[@]}")
if [ "${1:-}" = --leg ]; then
  IFS=, read -ra legs <<<"${2:?--leg needs a name}"
  shift 2
fi
build=$(realpath "${1:-build}")
ctest_arguments=("${@:2}")
work=$(mktemp -d)
chmod 755 "$work"

# suite LOG COMMAND…: the suite in this leg's TMPDIR, through COMMAND.
suite() {
  local log=$leg_dir/$1.log
  shift
  TMPDIR=$tmp HOME=$home "$@" tools/test.sh "$build" "${ctest_arguments[@]}" >"$log" 2>&1
}

not_run() {
  reason=$1
  return 77
}

as_another_user() { setpriv --reuid=65534 --regid=65534 --clear-groups "$@"; }

need_another_user() {
  [ "$(id -u)" = 0 ] || { not_run 'only root can become another user'; return; }
  as_another_user test -r tools/test.sh -a -x "$build/test_base" 2>/dev/null ||
    not_run "uid 65534 cannot run what lies in $build"
}

leg_shared() {
  [ -d "${DANLU_SHARED:-../shared}/golden" ] || { not_run 'there is no ../shared'; return; }
  suite run env
}

leg_no-shared() { suite run env -u CI DANLU_SHARED="$leg_dir/none"; }

leg_date() {
  local library offset
  library=$(find /usr/lib -name libfaketime.so.1 -print -quit 2>/dev/null)
  # An offset and not a moment: all processes must agree on what time it is.
  offset=$(($(TZ='<+14>-14' date -d '2031-12-31 23:57' +%s) - $(date +%s)))
  local there=(env TZ='<+14>-14' LD_PRELOAD="$library" FAKETIME="+$offset" FAKETIME_DONT_FAKE_MONOTONIC=1)
  [ -n "$library" ] && [ "$("${there[@]}" date +%Y)" = 2031 ] ||
    { not_run 'no libfaketime (tools/deps.sh --slow)'; return; }
  suite run "${there[@]}"
}

leg_locale-c() { suite run env -u LANG -u LANGUAGE LC_ALL=C; }

leg_locale-zh() {
  localedef -c -i zh_CN -f UTF-8 "$leg_dir/zh_CN.UTF-8" >/dev/null 2>&1
  local there=(env LOCPATH="$leg_dir" LC_ALL=zh_CN.UTF-8)
  [ "$("${there[@]}" date -d 2026-01-01 +%A)" = 星期四 ] ||
    { not_run 'zh_CN cannot be made (tools/deps.sh --slow)'; return; }
  suite run "${there[@]}"
}

with_threads() { suite run env OMP_NUM_THREADS="$1" OPENBLAS_NUM_THREADS="$1"; }
leg_threads-1() { with_threads 1; }
leg_threads-4() { with_threads 4; }

leg_twice() {
  suite first env & local first=$!
  suite second env & local second=$!
  wait $first && wait $second
}

leg_user() {
  need_another_user || return
  suite mine env & local mine=$!
  home=$leg_dir/another_home
  install -d -o 65534 "$home"
  suite theirs as_another_user & local theirs=$!
  wait $mine && wait $theirs
}

leg_home() {
  local who=env
  [ "$(id -u)" = 0 ] && { need_another_user || return; who=as_another_user; }
  chmod 555 "$home"
  "$who" test -w "$home" && { not_run 'HOME cannot be made read-only for this user'; return; }
  suite run "$who"
}

# Sums of the logs' "tests: … passed, … failed, … skipped".
counts() {
  cat "$leg_dir"/*.log | awk '/^tests: / { p += $2; f += $4; s += $6; ++n }
    END { printf "%d passed, %d failed, %d skipped%s", p, f, s, (n > 1 ? " in " n " runs" : "") }'
}

failed=() missing=()
for leg in "${legs[@]}"; do
  [[ " ${all_legs[*]} " = *" $leg "* ]] || { echo "no leg '$leg': ${all_legs[*]}" >&2; exit 2; }
  leg_dir=$work/$leg tmp=$work/$leg/tmp home=$work/$leg/home reason=''
  mkdir -p "$tmp" "$home"
  chmod 1777 "$tmp"
  "leg_$leg"
  code=$?
  if [ $code = 77 ] && [ -n "$reason" ]; then
    missing+=("$leg")
    printf '%-10s not run: %s\n' "$leg" "$reason"
    continue
  fi
  left=$(cd "$leg_dir" && find tmp home another_home -mindepth 1 2>/dev/null)
  verdict=ok
  sum=$(counts)
  [ $code = 0 ] && [ -z "$left" ] && [[ $sum != 0* ]] || { failed+=("$leg"); verdict=FAILED; }
  printf '%-10s %s: %s\n' "$leg" $verdict "$sum"
  [ $verdict = ok ] && continue
  grep -hE '^  failed|Test +#.*\*\*\*' "$leg_dir"/*.log | sort -u
  [ -z "$left" ] || printf '  left behind: %s\n' "${left//$'\n'/, }"
done

printf '\nlegs: %d ok, %d failed, %d not run%s\n' \
  $((${#legs[@]} - ${#failed[@]} - ${#missing[@]})) ${#failed[@]} ${#missing[@]} "${missing:+ (${missing[*]})}"
if [ ${#failed[@]} -gt 0 ]; then
  echo "logs: $work"
  exit 1
fi
rm -rf "$work"
