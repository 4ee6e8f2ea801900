#!/usr/bin/env python3
"""What becomes of gable where a GPU, its driver or a vendor's library fails: docs/devices.md says it, this checks it.

  bench/gpu_faults.py BUILD [--record faults.txt] [--only TEXT]

BUILD holds bin/gable, lib/ and tests/, as a build folder does; it needs one GPU and takes a minute. Failures are made by
tests/cuda/failing_driver.cpp, which is preloaded into the command: a kernel of someone else's that writes to an illegal
address, or driver functions that return an error from some moment on. The GPU itself is left as it is. Exits with 0 if
all is as the docs say, 1 if not, 4 where there is no GPU.
"""

import argparse
import concurrent.futures
import ctypes
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ENDS_WITHIN = 60  # s: nothing may hang
LOST = "Start the process again"


class Wrong(Exception):
    """What was seen is not what the docs say."""


def require(condition, text):
    if not condition:
        raise Wrong(text)


class Result:
    def __init__(self, process, out, err, seconds):
        self.code, self.out, self.err, self.seconds = process.returncode, out, err, seconds


class Gable:
    """The command of a build, in a folder of its own."""

    def __init__(self, build, folder):
        self.build, self.folder = build, folder
        self.faults = build / "tests" / "cuda" / "faults"

    def environment(self, changes, preload):
        all_of_it = dict(os.environ)
        all_of_it["LD_LIBRARY_PATH"] = f"{self.build / 'lib'}:{os.environ.get('LD_LIBRARY_PATH', '')}"
        all_of_it["GABLE_CACHE"] = str(self.folder / "choices")
        all_of_it.update(changes)
        if preload:
            all_of_it["LD_PRELOAD"] = str(self.faults / "libgable_failing_driver.so")
        return all_of_it

    def start(self, arguments, preload=False, limit="", **changes):
        command = [str(self.build / "bin" / "gable"), *arguments]
        if limit:
            command = ["sh", "-c", f'ulimit {limit}; exec "$@"', "sh", *command]
        return subprocess.Popen(command, env=self.environment(changes, preload), stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True, cwd=self.folder)

    def end(self, process, start):
        try:
            out, err = process.communicate(timeout=ENDS_WITHIN)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise Wrong(f"it had not ended after {ENDS_WITHIN} s") from None
        result = Result(process, out, err, time.monotonic() - start)
        require(result.code >= 0, f"signal {-result.code} ended it: {err[-300:]}")
        return result

    def run(self, arguments, **how):
        start = time.monotonic()
        return self.end(self.start(arguments, **how), start)

    def study(self, name):
        return json.loads((self.folder / name).read_text())


def problems(gable, count):
    text = "".join(f"mb1ic16ih16oc{8 * i}kh3ph1\n" for i in range(1, count + 1))
    (gable.folder / "list.txt").write_text(text)
    return ["--file", "list.txt", "--dtype", "f32", "--layout", "nhwc", "--threads", "1"]


def rows_on(study, device):
    return [row for row in study["measurements"] if row["device"].startswith(device)]


def has_rows(path, device):
    try:
        return bool(rows_on(json.loads(path.read_text()), device))
    except (OSError, ValueError):
        return False


def lost_in_the_middle(gable, words, **fault):
    """A GPU that is lost while `gable bench` measures it."""
    record, when = gable.folder / "lost.json", gable.folder / "when"
    for path in (record, when):
        path.unlink(missing_ok=True)
    count = 150
    arguments = ["bench", *problems(gable, count), "--device", "cpu,cuda:0", "--seconds", "0.02", "--json", record.name]
    start = time.monotonic()
    process = gable.start(arguments, preload=True, GABLE_FAULT_WHEN=str(when), **fault)
    while process.poll() is None and not has_rows(record, "cuda:0") and time.monotonic() - start < ENDS_WITHIN:
        time.sleep(0.02)
    when.touch()
    result = gable.end(process, start)
    study = gable.study(record.name)
    cpu, gpu, refused = rows_on(study, "cpu"), rows_on(study, "cuda:0"), study["refused"]
    require(result.code == 4, f"exit code {result.code}: {result.err[-300:]}")
    require(len(cpu) == count, f"{len(cpu)} rows of cpu")
    require(0 < len(gpu) < count, f"{len(gpu)} rows of cuda:0")
    require(len(gpu) + len(refused) == count, f"{len(gpu)} rows and {len(refused)} refusals")
    for one in refused:
        require(words in one["reason"] and LOST in one["reason"], f"a refusal says '{one['reason']}'")
    return (f"exit 4; {len(cpu)} rows of cpu and {len(gpu)} of cuda:0 kept, {len(refused)} refused: "
            f"'{refused[-1]['reason'][:90]}...'")


def illegal_address(gable):
    return lost_in_the_middle(gable, "cudaErrorIllegalAddress")


def disappears(gable):
    return lost_in_the_middle(gable, "cudaErrorUnknown", GABLE_FAULT_CODE="999")


def resumes(gable):
    """After `lost_in_the_middle`: a new process goes on."""
    arguments = ["bench", *problems(gable, 150), "--device", "cpu,cuda:0", "--seconds", "0.02", "--json", "lost.json"]
    before = len(rows_on(gable.study("lost.json"), "cuda:0"))
    result = gable.run([*arguments, "--resume"])
    study = gable.study("lost.json")
    require(result.code == 0, f"exit code {result.code}: {result.err[-300:]}")
    require(len(study["measurements"]) == 300 and not study["refused"], f"{len(study['measurements'])} rows")
    return f"exit 0; the {before} rows of cuda:0 kept, {150 - before} measured by a new process"


SMALL = ["--problem", "mb1ic16ih16oc24kh3ph1", "--layout", "nhwc", "--threads", "1"]


def taken(gable):
    """Exclusive compute mode, where another process has the GPU; prohibited mode gives the same code."""
    fault = {"preload": True, "GABLE_FAULT_CODE": "46", "GABLE_FAULT_CALLS": "cuDevicePrimaryCtxRetain"}
    named = gable.run(["bench", *SMALL, "--device", "cuda:0", "--seconds", "0.01"], **fault)
    require(named.code == 3 and "compute mode" in named.err, f"named: exit {named.code}: {named.err[-300:]}")
    result = gable.run(["bench", *SMALL, "--seconds", "0.01", "--json", "taken.json"], **fault)
    study = gable.study("taken.json")
    mode = study["machine"].get("mode", "")
    require(result.code == 0 and rows_on(study, "cpu"), f"by default: exit {result.code}: {result.err[-300:]}")
    require("left out: " in mode and "cuda:0" in mode, f"the record's mode is '{mode}'")
    chosen = gable.run(["bench", *SMALL, "--device", "auto", "--seconds", "0.01", "--json", "taken.json"], **fault)
    device = gable.study("taken.json")["measurements"][0]["device"]
    require(chosen.code == 0 and not device.startswith("cu"), f"auto: exit {chosen.code} on {device}")
    require(gable.run(["info"], **fault).code == 0, "gable info failed")
    return f"cuda:0: exit 3, '{named.err.strip()[:110]}...'; by default the others run, exit 0; auto: {device}"


def hidden(gable):
    """CUDA_VISIBLE_DEVICES between two runs."""
    auto = [*SMALL, "--device", "auto?memory=host"]
    # Large enough that the GPU is worth the copies.
    auto[1] = "mb16ic64ih56oc64kh3ph1"
    tuned = gable.run(["tune", *auto, "--json", "tuned.json"])
    require(tuned.code == 0, f"tune: exit {tuned.code}: {tuned.err[-300:]}")
    first = gable.run(["bench", *auto, "--seconds", "0.01", "--json", "hidden.json"])
    with_gpu = gable.study("hidden.json")["measurements"][0]["device"]
    bench = gable.run(["bench", *auto, "--seconds", "0.01", "--json", "hidden.json"], CUDA_VISIBLE_DEVICES="")
    without = gable.study("hidden.json")["measurements"][0]["device"]
    require(first.code == 0 and with_gpu.startswith("cu"), f"with the GPU: exit {first.code} on {with_gpu}")
    require(bench.code == 0 and not without.startswith("cu"), f"without: exit {bench.code} on {without}")
    named = gable.run(["bench", *SMALL, "--device", "cuda:0"], CUDA_VISIBLE_DEVICES="")
    require(named.code == 3 and "CUDA_VISIBLE_DEVICES" in named.err, f"named: exit {named.code}: {named.err[-300:]}")
    resumed = gable.run(["bench", *SMALL, "--device", "cpu,cuda:0", "--seconds", "0.01", "--json", "both.json"])
    gone = gable.run(["bench", *SMALL, "--device", "cpu,cuda:0", "--seconds", "0.01", "--json", "both.json", "--resume"],
                     CUDA_VISIBLE_DEVICES="")
    require(resumed.code == 0 and gone.code in (2, 3), f"--resume without the GPU: exit {gone.code}")
    require(len(gable.study("both.json")["measurements"]) == 2, "--resume without the GPU changed the record")
    return f"tuned and run on {with_gpu}; hidden: auto runs {without}, cuda:0 exits with 3, --resume with {gone.code}"


class HeldMemory:
    """Another process' memory: all of the GPU's but `left` bytes, through the driver's API."""

    def __init__(self, left):
        self.driver = ctypes.CDLL("libcuda.so.1")
        self.context, self.pieces = ctypes.c_void_p(), []
        self.call("cuInit", 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), 0)
        self.call("cuCtxSetCurrent", self.context)
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        piece = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(piece), ctypes.c_size_t(free.value - left))
        self.piece = piece

    def call(self, name, *arguments):
        status = getattr(self.driver, name)(*arguments)
        require(status == 0, f"{name}: CUresult {status}")

    def release(self):
        self.driver.cuMemFree_v2(self.piece)
        self.driver.cuDevicePrimaryCtxRelease_v2(0)


def little_memory(gable):
    """Another process has nearly all memory: 1.5 GiB are left, then 64 MiB."""
    arguments = ["bench", "--problem", "mb64ic64ih224oc64kh3ph1", "--problem", "mb1ic16ih16oc24kh3ph1", "--layout", "nhwc",
                 "--device", "cuda:0", "--seconds", "0.01", "--json", "full.json"]
    held = HeldMemory(3 << 29)
    try:
        result = gable.run(arguments)
        study = gable.study("full.json")
        require(len(study["measurements"]) == 1 and len(study["refused"]) == 1,
                f"{len(study['measurements'])} rows, {len(study['refused'])} refused, exit {result.code}")
        reason = study["refused"][0]["reason"]
        require("bytes" in reason and "MiB are free" in reason, f"the refusal says '{reason}'")
        require(result.code == 0, f"exit code {result.code} though one row ran")
        large = gable.run(["bench", "--problem", "mb64ic64ih224oc64kh3ph1", "--device", "cuda:0"])
        require(large.code == 4, f"alone: exit code {large.code}")
    finally:
        held.release()
    held = HeldMemory(64 << 20)
    try:
        none = gable.run(["bench", *SMALL, "--device", "cuda:0", "--seconds", "0.01"])
        said = none.err + none.out
        require(none.code == 4 and "cuda:0" in said, f"next to nothing: exit {none.code}: {said[-300:]}")
        default = gable.run(["bench", *SMALL, "--seconds", "0.01"])
        require(default.code == 0, f"by default: exit {default.code}: {default.err[-300:]}")
    finally:
        held.release()
    require(gable.run(arguments).code == 0 and len(gable.study("full.json")["measurements"]) == 2, "afterwards")
    return f"exit 4, '{reason[:100]}...'; with 64 MiB left exit 4 as well, and the cpu goes on; afterwards both run"


def address_space(gable):
    """`ulimit -v`: CUDA reserves far more than it uses."""
    info = gable.run(["info"], limit="-v 4000000")
    require(info.code == 0, f"gable info: exit {info.code}: {info.err[-300:]}")
    named = gable.run(["bench", *SMALL, "--device", "cuda:0"], limit="-v 4000000")
    require(named.code in (3, 4) and "cuda" in named.err, f"cuda:0: exit {named.code}: {named.err[-300:]}")
    default = gable.run(["bench", *SMALL, "--seconds", "0.01"], limit="-v 4000000")
    require(default.code == 0, f"by default: exit {default.code}: {default.err[-300:]}")
    return f"info exits with 0, cuda:0 with {named.code}: '{named.err.strip()[:110]}...'; by default the others run"


def two_processes(gable):
    """Without MPS the processes take turns; results are right, times are not what one alone would take."""
    verify = ["verify", "--random", "150", "--device", "cuda:0", "--seed"]
    start = time.monotonic()
    processes = [gable.start([*verify, seed]) for seed in ("1", "1001")]
    processes.append(gable.start(["bench", *SMALL, "--device", "cuda:0", "--seconds", "1"]))
    codes = [gable.end(process, start).code for process in processes]
    require(codes == [0, 0, 0], f"exit codes {codes}")
    return "two verify --random 150 and a bench at once: exit 0 each, no mismatch"


def no_mps(gable):
    """The variable of a multi-process service that is not there, and a service that refuses."""
    result = gable.run(["verify", *SMALL, "--device", "cuda:0"], CUDA_MPS_PIPE_DIRECTORY="/nonexistent")
    require(result.code == 0, f"no daemon: exit {result.code}: {result.err[-300:]}")
    refused = gable.run(["bench", *SMALL, "--device", "cuda:0"], preload=True, GABLE_FAULT_CODE="805",
                        GABLE_FAULT_CALLS="cuDevicePrimaryCtxRetain")
    require(refused.code == 3 and "CUDA_MPS_PIPE_DIRECTORY" in refused.err,
            f"refused: exit {refused.code}: {refused.err[-300:]}")
    return "no daemon: as without the variable, exit 0; a daemon that refuses: exit 3 with the cure"


def hanging_peer(gable):
    """A cuDNN whose first call never returns is tried in a child for 20 s, and then left out."""
    listed = (gable.build / "lib").glob("libgable_cudnn.so*")
    if not any(listed):
        return "skipped: this build has no cudnn"
    result = gable.run(["bench", *SMALL, "--seconds", "0.01", "--json", "hung.json"], GABLE_CUDNN=str(gable.faults))
    require(result.code == 0 and rows_on(gable.study("hung.json"), "cuda:0"), f"exit {result.code}: {result.err[-300:]}")
    named = gable.run(["bench", *SMALL, "--device", "cudnn:0"], GABLE_CUDNN=str(gable.faults))
    require(named.code == 3 and "had not returned after" in named.err, f"named: exit {named.code}: {named.err[-300:]}")
    return f"the others run, after {result.seconds:.0f} s in all; cudnn:0: exit 3, '...{named.err.strip()[60:180]}...'"


CASES = [illegal_address, disappears, resumes, taken, hidden, little_memory, address_space, two_processes, no_mps]


def verdict_of(case, gable):
    """The case's line of the record, and whether all was as documented."""
    start = time.monotonic()
    try:
        verdict, good = "as documented: " + case(gable), True
    except Exception as error:  # whatever goes wrong in one case, the others are looked at
        verdict, good = f"WRONG: {type(error).__name__}: {error}", False
    line = f"{case.__name__} ({time.monotonic() - start:.0f} s): " + " ".join(verdict.split())
    print(line, flush=True)
    return line, good


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=Path)
    parser.add_argument("--record", type=Path, help="write what was seen to this file")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="gable_gpu_faults_"))
    gable = Gable(arguments.build.resolve(), folder)
    info = gable.run(["info"])
    gpu = next((line.strip() for line in info.out.splitlines() if line.startswith(("  cuda:0 ", "  cuda "))), "")
    if not gpu or "not available" in gpu:
        print(f"gpu_faults: no GPU: {gpu or 'this build has no cuda'}")
        return 4
    wanted = [case for case in CASES if arguments.only in case.__name__]
    with concurrent.futures.ThreadPoolExecutor(1) as beside:
        waiting = None
        if arguments.only in hanging_peer.__name__:  # it mostly waits
            (folder / "hung").mkdir()
            waiting = beside.submit(verdict_of, hanging_peer, Gable(gable.build, folder / "hung"))
        verdicts = [verdict_of(case, gable) for case in wanted]
        if waiting:
            verdicts.append(waiting.result())
    lines = [f"# bench/gpu_faults.py, {time.strftime('%Y-%m-%d', time.gmtime())}, {' '.join(gpu.split())}"]
    lines += [line for line, _ in verdicts]
    if arguments.record:
        arguments.record.write_text("\n".join(lines) + "\n")
    shutil.rmtree(folder, ignore_errors=True)
    return 0 if all(good for _, good in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
