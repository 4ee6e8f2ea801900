#!/usr/bin/env python3
"""Times gable's CUDA kernels and PyTorch in turn on one GPU, in one process, on the same tensors.

Needs PyTorch and a build of gable: shapes come from `gable list`, gable runs through its C API (gable/c.h) on PyTorch's
memory and streams. Every result is compared with f64 arithmetic, gable's within its plan's own error bound. PyTorch
runs as eager calls, as cuDNN's fused convolution with bias and relu, and, if the options say so, compiled and as a
matrix product; each as calls on a stream and, named "... graph", inside a CUDA graph, which has no launch costs.
Tensors are channels-last, or in PyTorch's default layout with --layout nchw.

    bench/compare_pytorch.py --suite resnet50 --dtype f16,tf32 --json out.json

Exit codes: 0 done, 1 a result was wrong, 2 bad usage, 4 no GPU or no library.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

try:
    import torch
except ModuleNotFoundError as missing:
    wants_help = any(word in ("-h", "--help") for word in sys.argv[1:])
    if wants_help:
        print(__doc__)
        sys.exit(0)
    print(f"compare_pytorch.py needs PyTorch: {missing}", file=sys.stderr)
    sys.exit(4)

from pytorch.accuracy import accuracy_of, f64_reference
from pytorch.contestants import Contestant, matmul_call, set_torch_math, torch_contestants
from pytorch.gable_api import Gable, GableError, GablePlan
from pytorch.layer import KINDS, MEMORY_FORMATS, Layer, Operands, Record, make_operands
from pytorch.timing import Timed, ways_of


def measurement(layer: Layer, timed: Timed, device_name: str) -> Record:
    listed, contestant = layer.listed, timed.contestant
    q1, median, q3 = statistics.quantiles(timed.seconds, n=4, method="inclusive")
    record = {key: listed[key] for key in ("suite", "name", "op", "problem", "dtype", "math", "epilogue")}
    if "count" in listed:
        record["count"] = listed["count"]
    analytic = {"source": "analytic"}
    record |= {
        "layout": contestant.layout,
        "device": timed.name,
        "device_kind": "gpu",
        "device_name": device_name,
        "kernel": contestant.kernel,
        "fused": contestant.fused,
        "cache": "warm",
        "threads": None,
        "T": {
            "source": "event",
            "seconds": median,
            "q1": q1,
            "q3": q3,
            "fastest": min(timed.seconds),
            "runs": len(timed.seconds),
            "calls_per_run": timed.calls,
        },
        "W": analytic | {"flop": listed["flop"], "analytic": listed["flop"]},
        "Q": {"dram": analytic | {"bytes": listed["bytes"], "analytic": listed["bytes"]}},
        "intensity": listed["flop"] / listed["bytes"],
        "gflops": listed["flop"] / median / 1e9,
        "bound": None,
        "percent_of_roof": None,
    }
    return record | {key: contestant.accuracy[key] for key in ("max_error", "error_bound", "relative_error")}


class Study:
    """Measures layers one after another and keeps the record."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.start = time.monotonic()
        self.gable = Gable(options.library)
        self.devices = {uri: self.gable.open(uri) for uri in options.device}
        self.device_name = f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}"
        self.measurements: list[Record] = []
        self.refused: list[Record] = []
        self.wrong = 0

    def refuse(self, layer: Layer, device: str, reason: object) -> None:
        keys = ("suite", "name", "problem", "dtype", "math")
        first_line = str(reason).strip().split("\n")[0]
        self.refused.append({key: layer.listed[key] for key in keys} | {"device": device, "reason": first_line})
        print(f"{layer.listed['name']:<24} {layer.kind:<6} {device}: not run: {first_line[:160]}", flush=True)

    def out_of_time(self) -> bool:
        return time.monotonic() - self.start > self.options.seconds_total

    def run(self, layer: Layer) -> None:
        if self.out_of_time():
            self.refuse(layer, "", f"not measured: the {self.options.seconds_total:g} s for all were over")
            return
        torch.cuda.empty_cache()  # gable can't allocate memory that PyTorch's cache holds
        set_torch_math(layer)
        operands = make_operands(layer)
        with contextlib.ExitStack() as plans:
            contestants = [*self.gable_contestants(layer, operands, plans), *self.peers(layer, operands)]
            timings = self.measured(layer, self.correct_ones(layer, operands, contestants))
            torch.cuda.synchronize()
        self.measurements += [measurement(layer, timed, self.device_name) for timed in timings]
        print(row(layer, timings), flush=True)

    def gable_contestants(self, layer: Layer, operands: Operands, plans: contextlib.ExitStack) -> Iterator[Contestant]:
        for uri, device in self.devices.items():
            try:
                plan = GablePlan(self.gable, device, layer, operands.weights)
            except GableError as error:
                self.refuse(layer, uri, error)
                continue
            plans.callback(plan.close)
            y = torch.full(layer.conv["output"], math.nan, device="cuda", dtype=layer.dtype)
            y = y.contiguous(memory_format=layer.memory_format)
            yield Contestant(uri, plan.kernel(), plan.fused(), plan.caller(operands, y), layer.layout, plan.bound())

    def matmul(self, layer: Layer, operands: Operands) -> Iterator[Contestant]:
        bias = operands.bias.to(layer.dtype) if operands.bias is not None else None
        call = matmul_call(layer, operands.x, operands.weights, bias)
        if call is None:
            self.refuse(layer, "pytorch:matmul", "no matrix product: only 1x1 in NHWC with stride 1, without groups and padding, is one")
            return
        yield Contestant("pytorch:matmul", "matmul", layer.is_plain(), call, layer.layout)

    def peers(self, layer: Layer, operands: Operands) -> Iterator[Contestant]:
        if self.options.matmul:
            yield from self.matmul(layer, operands)
        compiled = self.options.compile is not None and bool(re.search(self.options.compile, layer.listed["name"]))
        for layout in dict.fromkeys([layer.layout, *(["nchw"] if self.options.nchw else [])]):
            yield from torch_contestants(layer, operands, layout, compiled)

    def correct_ones(self, layer: Layer, operands: Operands, contestants: list[Contestant]) -> list[Contestant]:
        """Checks each contestant and drops those that fail to run or have a wrong result."""
        exact, magnitude = f64_reference(layer, operands)
        correct = []
        for contestant in contestants:
            try:
                contestant.accuracy = accuracy_of(contestant.call(), exact, magnitude, contestant.bound)
            except (GableError, RuntimeError) as error:
                self.refuse(layer, contestant.device, error)
                continue
            if contestant.accuracy["ok"]:
                correct.append(contestant)
                continue
            self.wrong += 1
            self.refuse(layer, contestant.device, "WRONG: {max_error} of {error_bound}".format(**contestant.accuracy))
        return correct

    def measured(self, layer: Layer, contestants: list[Contestant]) -> list[Timed]:
        timings: list[Timed] = []
        for contestant in contestants:
            try:
                timings.extend(ways_of(contestant, self.options.sample_ms / 1e3))
            except (GableError, RuntimeError) as error:
                self.refuse(layer, contestant.device, error)
        for _ in range(self.options.rounds):
            for timed in timings:
                timed.seconds.append(timed.sample())
        return timings

    def record(self, machine: Record) -> Record:
        versions = machine.get("versions", {}) | {
            "torch": torch.__version__,
            "torch_cudnn": str(torch.backends.cudnn.version()),
            "torch_cuda": str(torch.version.cuda),
        }
        return {
            "schema_version": 1,
            "machine": machine | {"command": " ".join(["compare_pytorch.py", *sys.argv[1:]]), "versions": versions},
            "ceilings": [],
            "measurements": self.measurements,
            "refused": self.refused,
        }


def row(layer: Layer, timings: list[Timed]) -> str:
    """Microseconds on a stream/in a graph of each, and how many times faster gable's first device is than the fastest
    of PyTorch, in the same two ways."""
    median = {timed.name: statistics.median(timed.seconds) for timed in timings}
    names = [timed.name for timed in timings if not timed.name.endswith(" graph")]
    cells = [f"{name} {median[name] * 1e6:.1f}/{median.get(name + ' graph', math.nan) * 1e6:.1f}" for name in names]
    ratios = []
    for suffix in ("", " graph"):
        peers = [median[name + suffix] for name in names if name.startswith("pytorch") and name + suffix in median]
        ours = next((median[name + suffix] for name in names if not name.startswith("pytorch")), math.nan)
        ratios.append(f"{min(peers, default=math.nan) / ours:.2f}")
    kernel = next((timed.contestant.kernel for timed in timings), "")
    return f"{layer.listed['name']:<24} {layer.kind:<6} {kernel:<16} x{'/'.join(ratios)}  {'  '.join(cells)}"


def gable_json(command: Path, arguments: list[str]) -> Record:
    done = subprocess.run([str(command), *arguments, "--json", "-"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.stderr.write(done.stderr)
        raise SystemExit(2 if done.returncode == 2 else 4)
    return json.loads(done.stdout)


def selected(options: argparse.Namespace) -> Iterator[Layer]:
    """The convolutions of every list for every dtype, once each."""
    lists = [["--suite", suite] for suite in options.suite]
    epilogue = [word for name in ("activation", "max_pool") for word in flag(name, getattr(options, name))]
    bias = ["--bias"] if options.bias else []
    lists += [["--file", file, *epilogue, *bias] for file in options.file]
    problems = [word for problem in options.problem for word in ("--problem", problem)]
    if problems:
        lists.append([*problems, *epilogue, *bias])
    common = ["--gpu", "--layout", options.layout, *flag("name", options.name), *flag("max_batch", options.max_batch)]
    for arguments in lists:
        for kind in options.dtype:
            dtype, arithmetic = KINDS[kind]
            cases = gable_json(options.gable, ["list", *arguments, *common, "--dtype", dtype, "--math", arithmetic])[
                "cases"
            ]
            yield from (Layer(case) for case in cases if case["op"] == "conv2d")


def flag(name: str, value: str | None) -> list[str]:
    return [f"--{name.replace('_', '-')}", value] if value else []


def library_beside(command: Path) -> Path:
    found = sorted((command.resolve().parent.parent / "lib").glob("libgable.so*"))
    return found[0] if found else Path("libgable.so")


def words(text: str) -> list[str]:
    return [word for word in text.split(",") if word]


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", type=words, default=[], help="suites of gable's, with commas")
    parser.add_argument("--problem", action="append", default=[], help="benchdnn's descriptor; may be repeated")
    parser.add_argument("--file", action="append", default=[], help="a list of descriptors; may be repeated")
    parser.add_argument("--max-batch", help="cap the batch")
    parser.add_argument("--name", help="only layers whose name contains this")
    parser.add_argument("--dtype", type=words, default=["f32", "tf32", "f16", "bf16"], help=", ".join(KINDS))
    parser.add_argument("--bias", action="store_true", help="of --problem and --file")
    parser.add_argument("--activation", help="of --problem and --file: none, relu or tanh")
    parser.add_argument("--max-pool", help="of --problem and --file, as 2")
    parser.add_argument("--device", type=words, default=["cuda:0"], help="gable's devices, e.g. cuda:0,cudnn:0")
    parser.add_argument("--layout", choices=list(MEMORY_FORMATS), default="nhwc", help="of gable and PyTorch")
    parser.add_argument("--nchw", action="store_true", help="PyTorch in its default layout, too")
    parser.add_argument("--compile", metavar="REGEX", help="layers for torch.compile, which takes seconds each")
    parser.add_argument("--matmul", action="store_true", help="PyTorch's matrix product as well, for 1x1 layers")
    parser.add_argument("--rounds", type=int, default=9, help="samples of each")
    parser.add_argument("--sample-ms", type=float, default=2, help="length of a sample")
    parser.add_argument("--benchmark-limit", type=int, default=0, help="cuDNN engines that PyTorch tries; 0: all")
    parser.add_argument("--seconds-total", type=float, default=math.inf, help="start no layer after this")
    parser.add_argument("--gable", type=Path, default=Path("build/release/bin/gable"), help="the gable command")
    parser.add_argument("--library", type=Path, help="libgable.so (default: beside the command)")
    parser.add_argument("--json", type=Path, help="write the record here")
    options = parser.parse_args()
    if not options.suite and not options.problem and not options.file:
        parser.error("give --suite, --problem or --file")
    if options.rounds < 2:
        parser.error(f"--rounds {options.rounds}: quartiles need at least 2")
    for kind in options.dtype:
        if kind not in KINDS:
            parser.error(f"--dtype {kind}: there are {', '.join(KINDS)}")
    options.library = options.library or library_beside(options.gable)
    return options


def main() -> int:
    options = parse_arguments()
    if not torch.cuda.is_available():
        print("compare_pytorch: PyTorch finds no GPU", file=sys.stderr)
        return 4
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.benchmark_limit = options.benchmark_limit
    try:
        study = Study(options)
    except (OSError, GableError) as error:
        print(f"compare_pytorch: {error}", file=sys.stderr)
        return 4
    with torch.inference_mode():
        for layer in selected(options):
            study.run(layer)
    if options.json:
        machine = gable_json(options.gable, ["info"])["machine"]
        options.json.write_text(json.dumps(study.record(machine), indent=1) + "\n")
    return 1 if study.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
