# shellcheck shell=bash disable=SC2154 # root, build, and the exit codes are those of run
# A part of ./run: `./run lint` and `./run docs`.

lint_command() {
  local tidy=yes files=() sources=() jobs status=0 all=yes
  if [[ $* == *.* ]]; then all=no; fi
  while (($# > 0)); do
    case $1 in
      --format) tidy=no ;;
      -*)
        say "run: lint knows no $1"
        exit "$exit_usage"
        ;;
      *.h | *.c | *.cpp | *.cu | *.cuh) files+=("$1") ;;
      *) say "$1 is no source in C++: left out" ;;
    esac
    shift
  done
  cd "$root" || exit "$exit_system"
  if [[ $tidy == yes ]]; then prepare test,lint; else ensure_build_folder; fi
  command -v clang-format >/dev/null || fail "lint needs clang-format"
  if [[ $all == yes ]]; then
    mapfile -t files < <(git ls-files -- '*.h' '*.c' '*.cpp' '*.cu' '*.cuh')
  fi
  jobs=$(parallel_jobs)
  if ((${#files[@]} > 0)); then
    printf '%s\0' "${files[@]}" | xargs -0 -n 16 -P "$jobs" clang-format --dry-run --Werror || status=$exit_check_failed
  fi
  if [[ $tidy == yes ]]; then
    command -v clang-tidy >/dev/null || fail "lint needs clang-tidy"
    configure release
    # What the compiler sees of it: files that this build leaves out can't be checked.
    mapfile -t sources < <(printf '%s\n' "${files[@]}" | grep -E '\.cpp$' | while IFS= read -r file; do
      if grep -qF "\"file\": \"$root/$file\"" build/release/compile_commands.json; then printf '%s\n' "$file"; fi
    done)
    say "clang-tidy on ${#sources[@]} sources ($jobs jobs) ..."
    if ((${#sources[@]} > 0)); then
      printf '%s\0' "${sources[@]}" | xargs -0 -n 1 -P "$jobs" clang-tidy -p build/release --quiet --warnings-as-errors='*' \
        2> >(grep -vE '^[0-9]+ warnings? (generated|treated)|^Suppressed|^Use -header' >&2) || status=$exit_check_failed
    fi
  fi
  if ((status == 0)); then say "Nothing to say."; fi
  exit "$status"
}

docs_command() {
  local log=$build/docs/warnings.txt warnings
  ensure_build_folder
  ensure_packages docs
  command -v doxygen >/dev/null || fail "docs needs doxygen"
  rm -rf "$build/docs"
  mkdir -p "$build/docs"
  (cd "$root" && doxygen docs/Doxyfile >"$build/docs/doxygen.log" 2>&1) ||
    fail_with_log "$build/docs/doxygen.log" "doxygen failed"
  # Fields whose names say all, and moves, need no comment; overloads share the first one's.
  warnings=$(grep -vE '\((variable|enumeration)\) .* is not documented|=default|~[A-Z]|&&|Member (run|ConstTensorView|PoolWindow)\(' "$log" |
    sed "s|^$root/||" | sort -u || true)
  if [[ -n $warnings ]]; then printf 'Doxygen warns:\n%s\n' "$warnings"; fi
  say "The reference is build/docs/api/index.html; all of Doxygen's warnings are in build/docs/warnings.txt"
}
