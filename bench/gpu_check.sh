#!/usr/bin/env bash
# Checks and measures the CUDA kernels on a machine with a GPU, from a build that was made there or copied there:
#
#   bench/gpu_check.sh BUILD OUT [verify] [sanitize] [faults] [bench] [profile]      (all without names)
#
# BUILD holds bin/gable, lib/ and tests/, as a build folder of gable does. OUT gets a log and a JSON record of each step.
# Exits 0 if everything that ran passed, 1 if a check failed, 4 if the GPU can't be used. Needs the NVIDIA driver;
# compute-sanitizer and ncu for their steps, which are skipped with a message without them.
set -uo pipefail

if (($# < 2)); then
  sed -n '2,9s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi
build=$(cd "$1" && pwd) || exit 2
mkdir -p "$2" && out=$(cd "$2" && pwd) || exit 2
steps=("${@:3}")
if ((${#steps[@]} == 0)); then steps=(verify sanitize faults bench profile); fi
export LD_LIBRARY_PATH=$build/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
gable=$build/bin/gable
failed=0

say() { printf '%s\n' "$*"; }

# check NAME command…: the output goes to OUT/NAME.log; its end is shown if the command fails. Exit code 3: the kernel
# refused the problem with a reason.
check() {
  local name=$1 start=$SECONDS status=0
  shift
  "$@" >"$out/$name.log" 2>&1 || status=$?
  case $status in
    0) say "passed  $name ($((SECONDS - start)) s)" ;;
    3) say "refused $name: $(grep -m 1 -E '^ +[a-z0-9_]+.*: ' "$out/$name.log")" ;;
    *)
      say "FAILED  $name (exit code $status, $((SECONDS - start)) s): $*"
      tail -n 25 "$out/$name.log"
      failed=1
      ;;
  esac
}

has() { command -v "$1" >/dev/null || { say "skipped $2: no $1 on the PATH"; return 1; }; }

# The convolution kernels of the first GPU, best first.
kernels() {
  awk '/^  cuda:0 /{getline; sub(/^ *kernels: */, ""); gsub(/, /, "\n"); print; exit}' "$out/info.txt" |
    grep -vxE 'max_pool|add|transpose|reorder'
}

# Small shapes with edges everywhere: tails of tiles, padding, strides, groups.
small_problems=(--problem mb1ic64ih12iw18oc72oh12ow18kh3ph1 --problem mb2ic18ih11iw13oc34oh11ow13kh3ph1 --problem g2mb1ic12ih9oc20oh5kh3sh2ph1
  --problem mb1ic3ih31oc24oh16kh7sh2ph3 --problem mb2ic32ih8iw7oc65oh8ow7kh1 --problem mb1ic4ih32oc33oh8kh4sh4
  --problem g13mb2ic13ih11iw9oc13oh11ow9kh3ph1 --problem g24mb1ic24ih14iw11oc24oh7ow6kh7sh2ph3
  --problem g16mb1ic16ih9iw17oc32oh9ow17kh5ph2 --problem g8mb2ic8ih20oc8oh10kh11sh2ph5
  --problem g4mb1ic32ih13oc48oh7kh3sh2ph1 --problem g3mb2ic96ih7oc96oh7kh1 --problem mb1ic1ih20oc7oh20kh3ph1 --problem mb2ic24ih15oc12oh15kh1 --bias)

verify_step() {
  check conformance env GABLE_TEST_BACKEND=cuda "$build/tests/conformance_test"
  check cuda_test "$build/tests/cuda_test"
  check cuda_once_test "$build/tests/cuda_once_test"
  check cuda_fault_test "$build/tests/cuda_fault_test" -s
  check cuda_old_driver_test env LD_LIBRARY_PATH="$build/tests/cuda/old_driver:$LD_LIBRARY_PATH" \
    "$build/tests/cuda_old_driver_test"
  grep -h -A 40 'cases run, refused' "$out/conformance.log" | grep 'cuda' || {
    say "FAILED  conformance: it ran no kernel of cuda"
    failed=1
  }
}

# sanitize TOOL KERNELS: these kernels on the small problems: f32 in both maths with and without a pool, f16 in the other
# layout; then, for "ops", the ops without weights and PageRank.
sanitize() {
  local devices='' kernel how status worst=0 tool=(--tool "$1" --error-exitcode 9)
  if [[ $1 == racecheck ]]; then tool+=(--print-limit 1000000 --show-backtrace no); fi  # all hazards, a line or two each
  if [[ $2 == ops ]]; then
    compute-sanitizer "${tool[@]}" "$build/tests/cuda_once_test" \
      -tc='ops without weights*,PageRank of a graph*'
    return
  fi
  for kernel in $2; do devices+=${devices:+,}cuda:0?kernel=$kernel; done
  for how in "--dtype f32 --math strict,tf32 --layout nhwc --activation relu --max-pool 2" \
    "--dtype f32 --math strict,tf32,split3 --layout nhwc" "--dtype f16 --layout nchw --activation tanh"; do
    # shellcheck disable=SC2086
    compute-sanitizer "${tool[@]}" "$gable" verify "${small_problems[@]}" $how --device "$devices" ||
      { status=$?; if ((status != 3)); then worst=$status; fi; }
  done
  return $worst
}

# What racecheck says of the exchanges of tests/cuda/racecheck_witness, of which all but "none" are right; false where it is not
# to be trusted at all. The kinds of report about "named", in the steps of wgmma, are the tool's own.
ask_witness() {
  local way code attempt
  for way in cluster arrive named tx none; do
    for attempt in 1 2 3 4 5 6; do  # it sees the race of "named" in some runs only
      code=0
      compute-sanitizer --tool racecheck --print-limit 1000000 --show-backtrace no --error-exitcode 9 \
        "$build/tests/cuda/racecheck_witness" "$way" >"$out/witness-$way.log" 2>&1 || code=$?
      if [[ $way != named ]] || grep -q 'Race reported' "$out/witness-$way.log"; then break; fi
    done
    printf '%s: exit code %s, %s races, %s writes to blocks that might have exited, run %s\n' "$way" "$code" \
      "$(grep -c 'Race reported' "$out/witness-$way.log")" "$(grep -c 'Potential invalid' "$out/witness-$way.log")" "$attempt"
  done >"$out/witness.txt"
  grep -q '^cluster: exit code 0, 0 races, 0 ' "$out/witness.txt" && grep -q '^none: exit code 9, [1-9]' "$out/witness.txt"
}

# What racecheck-wgmma.log reports beyond the list of what is excused, both kinds where the witness has them too: writes
# before reads in wgmma, and writes to a block of the cluster that "might have already exited", which waits for them.
unexcused() {
  local races exits
  races=$(grep -c 'Race reported' "$out/witness-named.log")
  exits=$(grep -c 'Potential invalid' "$out/witness-named.log")
  awk -v races="$races" -v exits="$exits" '/^=+ (Error: |Warning: )?Race reported between/ {
      first = $0; getline
      if (!races || first !~ /Write access at .*wgmma::kernel</ || !/Read access at .*wgmma::kernel</) print first " " $0
      next
    }
    /^=+ Potential invalid __shared__ write/ {getline; if (!exits || !/wgmma::kernel</) print; next}
    /^=+ (Error|Warning|Invalid|Potential|Internal)/ {print}' "$out/racecheck-wgmma.log"
}

# A process a tool, and one a kernel for racecheck, so that each has a verdict of its own; four at once, since the GPU is
# hardly busy. OUT/sanitize.txt is the record: how many results of each kernel were right under each tool, with what was
# found. A kernel without any is a failure.
sanitize_step() {
  has compute-sanitizer sanitize || return 0
  local tool kernel all='' some jobs='' name ran line found
  all=$(kernels | tr '\n' ' ')
  for tool in memcheck initcheck synccheck; do
    some=$all
    # initcheck does not see the writes of wgmma's tensor copies.
    if [[ $tool == initcheck ]]; then some=${all/wgmma /}; fi
    jobs+="$tool $tool $some"$'\n'"$tool-ops $tool ops"$'\n'
  done
  for kernel in $all ops; do jobs+="racecheck-$kernel racecheck $kernel"$'\n'; done
  export -f check sanitize say ask_witness unexcused
  export out build gable small="${small_problems[*]}"
  printf '%s' "$jobs" | xargs -P 4 -d '\n' -I{} bash -c 'read -r name tool kernels <<<"{}"; failed=0
    read -ra small_problems <<<"$small"
    check "$name" sanitize "$tool" "$kernels" >"$out/$name.txt" 2>&1
    if [[ $name == racecheck-wgmma ]] && grep -q "(exit code 9," "$out/$name.txt" && ask_witness &&
      [[ -z $(unexcused) ]] && ! grep -qE "[1-9][0-9]* mismatched" "$out/$name.log"; then
      echo "excused racecheck-wgmma: exchanges that racecheck does not follow (witness.txt)" >"$out/$name.txt"
      failed=0
    fi
    exit $failed' || failed=1
  {
    printf '# bench/gpu_check.sh: %s; %s\n' "$(compute-sanitizer --version | grep -m 1 -i version)" \
      "$(grep -m 1 -E '^  cuda:0 ' "$out/info.txt" | sed 's/  */ /g')"
    printf '%-18s%10s%10s%10s%10s  %s\n' 'right results' memcheck initcheck synccheck racecheck 'racecheck found'
    for kernel in $all; do
      line=$(printf '%-18s' "$kernel")
      for name in memcheck initcheck synccheck "racecheck-$kernel"; do
        ran=$(grep -cE "kernel=$kernel .* ok\$" "$out/$name.log")
        if ((ran == 0)) && [[ $name-$kernel == initcheck-wgmma ]]; then ran=-; fi
        line+=$(printf '%10s' "$ran")
      done
      found=$(grep -hoE '[0-9]+ hazards displayed.*' "$out/racecheck-$kernel.log" | sort -u | paste -sd ';')
      printf '%s  %s\n' "$line" "$found"
    done
    for name in memcheck initcheck synccheck memcheck-ops initcheck-ops synccheck-ops racecheck-ops; do
      printf '%s: ' "$name"
      grep -hoE '(ERROR SUMMARY: .*|RACECHECK SUMMARY: .*)' "$out/$name.log" | sort | uniq -c | sed 's/^ *//' | paste -sd ';'
    done
    sed 's/^/witness of racecheck, /' "$out/witness.txt"
  } 2>/dev/null | tee "$out/sanitize.txt"
  cat "$out"/racecheck-*.txt "$out"/{mem,init,sync}check*.txt | grep -E '^(passed|FAILED|refused|excused)'
  if awk '/^[a-z_]+ +[0-9]/ {for (i = 2; i <= 5; ++i) if ($i == "0") bad = 1} END {exit !bad}' "$out/sanitize.txt"; then
    say "FAILED  sanitize: a kernel gave no result"
    failed=1
  fi
}

faults_step() {
  has python3 faults || return 0
  check faults python3 "$(dirname "$0")/gpu_faults.py" "$build" --record "$out/faults.txt"
}

bench_step() {
  local kernel devices ladder=''
  check info "$gable" info --json "$out/info.json"
  devices=cuda:0
  if grep -qE '^  cudnn:0 .*' "$out/info.txt" && ! grep -qE '^  cudnn:0 *not available' "$out/info.txt"; then devices+=,cudnn:0; fi
  check ceilings "$gable" ceilings --quick --json "$out/ceilings.json"
  check plausible python3 "$(dirname "$0")/gpu_ceilings_check.py" "$out/ceilings.json"
  check study "$gable" bench --suite study --device "$devices" --json "$out/study.json"
  # The ladder, its steps in turn on the same layers.
  for kernel in $(kernels); do ladder+=${ladder:+,}cuda:0?kernel=$kernel; done
  check ladder-f32 "$gable" bench --suite study --name lenet,vgg_b16 --dtype f32 --math strict,tf32 --seconds 0.3 \
    --device "$ladder" --json "$out/ladder-f32.json"
}

profile_step() {
  has ncu profile || return 0
  local kernel
  for kernel in $(kernels); do
    check "ncu-$kernel" ncu --clock-control none --launch-count 1 --kernel-name "regex:.*kernel.*" --set basic \
      --section SpeedOfLight --section MemoryWorkloadAnalysis --section Occupancy --section WarpStateStats \
      "$gable" run conv2d --problem mb16ic64ih224oc64oh224kh3ph1 --layout nhwc --output "$out/y.npy" \
      --device "cuda:0?kernel=$kernel"
    rm -f "$out/y.npy"
  done
}

"$gable" info >"$out/info.txt" 2>&1
if ! grep -qE '^  cuda:0 ' "$out/info.txt"; then
  grep -A 2 '^  cuda' "$out/info.txt"
  say "gpu_check: no usable GPU"
  exit 4
fi
for step in "${steps[@]}"; do
  case $step in
    verify | sanitize | faults | bench | profile) "${step}_step" ;;
    *)
      say "gpu_check: unknown step '$step'; there are verify, sanitize, faults, bench, profile"
      exit 2
      ;;
  esac
done
exit $failed
