# shellcheck shell=bash disable=SC2154 # root, build, and the exit codes are those of run
# A part of ./run: `./run test`, in the release build and under sanitizers.

# A number from ctest's JUnit file: count ATTRIBUTE FILE
count() {
  local number
  number=$(sed -n "s/.*[^a-z]$1=\"\([0-9]*\)\".*/\1/p" "$2" | head -n 1)
  printf '%s' "${number:-0}"
}

# run_tests PRESET ctest-arguments: adds to passed, failed and skips
# Tests run side by side, so OpenMP's threads must sleep while they wait: spinning, two tests with two threads each take
# thirty times as long on two cores.
run_tests() {
  local preset=$1 junit=$build/$1-tests.xml status=0 ran bad
  shift
  rm -f "$junit"
  export OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive}
  export GABLE_CACHE=${GABLE_CACHE:-off} # what `auto` measured before must not decide here
  (cd "$root" && ctest --preset "$preset" --output-junit "$junit" "$@" </dev/null) || status=$?
  [[ -f $junit ]] || fail "ctest ($preset) gave no result"
  bad=$(count failures "$junit")
  ran=$(($(count tests "$junit") - $(count skipped "$junit") - $(count disabled "$junit")))
  if ((status != 0 && bad == 0)); then bad=1; fi
  failed=$((failed + bad)) passed=$((passed + ran - bad))
  skips+=$(grep -hE 'is left out' "$build/$preset-configure.log" | sed 's/^-- //' || true)$'\n'
  skips+=$(grep -hoE '(^|MESSAGE: )(skipped|not run).*' "$build/$preset/Testing/Temporary/LastTest.log" |
    sed -E 's/^MESSAGE: //' || true)$'\n'
}

# What the machine itself lacks, in the command's words: devices and counters with their reasons.
say_what_is_absent() {
  "$build/release/bin/gable" info 2>/dev/null | grep -E -A 1 'not available' | grep -v '^--' || true
}

readonly thread_tests="api_test auto_test choice_cache_test choose_test conformance_test listener_threads_test"

# Where libomp looks for the library that tells ThreadSanitizer which thread of a team waits for which.
archer() {
  local clang
  clang=$(readlink -f "$(command -v clang++)")
  printf '%s' "${clang%/bin/*}/lib/libarcher.so"
}

# thread_sanitizer ctest-arguments: adds to passed, failed and skips
thread_sanitizer() {
  if ! command -v clang++ >/dev/null || [[ ! -e $(archer) ]]; then fail "--tsan needs clang and libomp with libarcher.so"; fi
  build tsan "$thread_tests" "the tests of threads with ThreadSanitizer"
  OMP_TOOL_LIBRARIES=$(archer) GABLE_TEST_BACKEND=cpu run_tests tsan -R "^(${thread_tests// /|})\$" "$@"
}

# Before anything is built. Without ctest, which is about to be installed, nothing is refused.
require_known_to_ctest() {
  local known argument
  known=$(ctest --help 2>/dev/null) || return 0
  for argument in "$@"; do
    [[ $argument == --* ]] || continue
    grep -qE -- "(^|[ ,])${argument%%=*}([] =,<[]|$)" <<<"$known" && continue
    say "run: test knows no '$argument', and neither does ctest (ctest --help); its own are --no-sanitizers and --tsan"
    exit "$exit_usage"
  done
}

test_command() {
  local sanitizers=yes ctest_arguments=()
  while (($# > 0)); do
    case $1 in
      --no-sanitizers) sanitizers=no ;;
      --tsan) sanitizers=thread ;;
      *) ctest_arguments+=("$1") ;;
    esac
    shift
  done
  passed=0 failed=0 skips=
  require_known_to_ctest "${ctest_arguments[@]}"
  if [[ $sanitizers == thread ]]; then
    prepare test,clang
    thread_sanitizer "${ctest_arguments[@]}"
    echo "$passed passed, $failed failed under ThreadSanitizer"
    if ((failed > 0)); then exit "$exit_check_failed"; fi
    return
  fi
  prepare test
  build release all "gable and its tests"
  run_tests release --parallel "$(parallel_jobs)" "${ctest_arguments[@]}"
  if [[ $sanitizers == yes ]]; then
    build asan-ubsan all "all of it again with AddressSanitizer and UndefinedBehaviorSanitizer"
    # Side by side: they are slow, and nothing here is a question of time.
    GABLE_TEST_FAST=1 run_tests asan-ubsan --parallel "$(parallel_jobs)" "${ctest_arguments[@]}"
  else
    skips+="the sanitizers' run (--no-sanitizers)"$'\n'
  fi
  echo
  echo "Not tested here:"
  { printf '%s' "$skips" | sed '/^$/d; s/^/  /' | sort -u; say_what_is_absent; }
  echo
  echo "$passed passed, $failed failed"
  if ((failed > 0)); then exit "$exit_check_failed"; fi
}
