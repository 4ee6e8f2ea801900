# shellcheck shell=bash disable=SC2154 # root, build, and the exit codes are those of run
# A part of ./run: `./run fuzz`.

readonly fuzz_targets="problem list npy study choices device_uri conv2d kernels"

# fuzz_one TARGET SECONDS: new inputs go to build/fuzz/corpus, findings to build/fuzz/findings
fuzz_one() {
  local target=$1 corpus=$build/fuzz/corpus/$1 log=$build/fuzz/$1.log status=0
  mkdir -p "$corpus" "$build/fuzz/findings"
  OMP_WAIT_POLICY=passive "$build/fuzz/bin/fuzz_$target" "$corpus" "$root/fuzz/corpus/$target" -max_total_time="$2" \
    -timeout=60 -rss_limit_mb=4096 -max_len=32768 -print_final_stats=1 -artifact_prefix="$build/fuzz/findings/$target-" \
    >"$log" 2>&1 || status=$?
  if ((status == 0)); then
    printf '%-12s %s runs, nothing found\n' "$target" "$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")"
    return 0
  fi
  printf '%-12s a finding: see %s\n' "$target" "$log"
  grep -E '^(fuzz:|==[0-9]+==ERROR|SUMMARY|.*runtime error|artifact_prefix|Test unit)' "$log" | head -n 8 >&2 || true
  return 1
}

fuzz_command() {
  local seconds=300 targets=() target failed=0
  while (($# > 0)); do
    case $1 in
      --seconds)
        seconds=${2:-}
        [[ $seconds =~ ^[1-9][0-9]*$ ]] || { say "run: --seconds '$seconds': must be a whole number above 0"; exit "$exit_usage"; }
        shift
        ;;
      *)
        [[ " $fuzz_targets " == *" $1 "* ]] || { say "run: fuzz knows no '$1'; targets are $fuzz_targets"; exit "$exit_usage"; }
        targets+=("$1")
        ;;
    esac
    shift
  done
  if ((${#targets[@]} == 0)); then read -ra targets <<<"$fuzz_targets"; fi
  prepare clang
  build fuzz gable_fuzzers "the fuzzers with sanitizers"
  for target in "${targets[@]}"; do
    fuzz_one "$target" $(((seconds + ${#targets[@]} - 1) / ${#targets[@]})) || failed=1
  done
  if ((failed > 0)); then exit "$exit_check_failed"; fi
}
