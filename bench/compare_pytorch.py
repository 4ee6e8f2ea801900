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
import ctypes
import json
import math
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

Record = dict[str, Any]
Call = Callable[[], torch.Tensor]

# The values of --dtype: gable's dtype and math.
KINDS = {
    "f32": ("f32", "strict"),
    "tf32": ("f32", "tf32"),
    "split3": ("f32", "split3"),
    "split6": ("f32", "split6"),
    "f16": ("f16", "strict"),
    "bf16": ("bf16", "strict"),
}
TORCH_DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
MEMORY_FORMATS = {"nhwc": torch.channels_last, "nchw": torch.contiguous_format}
WRONG = 0.02  # relative error of a whole tensor; above it a contestant's result is wrong


class GableError(Exception):
    """A failed call of gable, with its message."""


class CConv2d(ctypes.Structure):
    """struct gable_conv2d."""

    _fields_ = [
        ("input", ctypes.c_int64 * 4),
        ("weights", ctypes.c_int64 * 4),
        ("stride", ctypes.c_int64 * 2),
        ("padding", ctypes.c_int64 * 4),
        ("dilation", ctypes.c_int64 * 2),
        ("groups", ctypes.c_int64),
        ("dtype", ctypes.c_int),
        ("layout", ctypes.c_int),
        ("math", ctypes.c_int),
        ("bias", ctypes.c_int),
        ("activation", ctypes.c_int),
        ("pool_window", ctypes.c_int64 * 2),
        ("pool_stride", ctypes.c_int64 * 2),
    ]


class CErrorBound(ctypes.Structure):
    """struct gable_error_bound."""

    _fields_ = [("accumulation", ctypes.c_double), ("rounding", ctypes.c_double), ("absolute", ctypes.c_double)]


@dataclass(frozen=True)
class Layer:
    """A convolution as `gable list` describes it."""

    listed: Record

    @property
    def conv(self) -> Record:
        return self.listed["conv2d"]

    @property
    def dtype(self) -> torch.dtype:
        return TORCH_DTYPES[self.listed["dtype"]]

    @property
    def math(self) -> str:
        return self.listed.get("math", "strict")

    @property
    def kind(self) -> str:
        return self.listed["dtype"] if self.math == "strict" else self.math

    @property
    def layout(self) -> str:
        return self.listed.get("layout", "nhwc")

    @property
    def memory_format(self) -> torch.memory_format:
        return MEMORY_FORMATS[self.layout]

    @property
    def activation(self) -> str:
        return self.listed["epilogue"]["activation"]

    @property
    def has_bias(self) -> bool:
        return bool(self.listed["epilogue"]["bias"])

    @property
    def pool(self) -> tuple[list[int], list[int]] | None:
        window = self.conv["pool_window"]
        return (window, self.conv["pool_stride"]) if window[0] > 0 else None

    def is_plain(self) -> bool:
        return not self.has_bias and self.activation == "none" and self.pool is None

    def is_product(self) -> bool:
        """Whether it is a matrix product of pixels and channels, without copies."""
        c = self.conv
        one = c["weights"][2:] == [1, 1] and c["stride"] == [1, 1] and c["groups"] == 1
        return one and not any(c["padding"]) and self.layout == "nhwc"

    def symmetric_padding(self) -> list[int] | None:
        """Padding above and left, if the same padding below and right gives the same output: PyTorch has no other."""
        c = self.conv
        same = []
        for i in (0, 1):
            reach = c["dilation"][i] * (c["weights"][2 + i] - 1) + 1
            before, after = c["padding"][i], c["padding"][2 + i]
            outputs = {(c["input"][2 + i] + before + end - reach) // c["stride"][i] for end in (before, after)}
            same.append(len(outputs) == 1)
        return c["padding"][:2] if all(same) else None


@dataclass
class Operands:
    """x is in the layer's layout, weights are (K, C/groups, R, S) in that order, bias is f32 of the dtype's values."""

    x: torch.Tensor
    weights: torch.Tensor
    bias: torch.Tensor | None


@dataclass
class Contestant:
    """One way to compute a layer."""

    device: str
    kernel: str
    fused: bool
    call: Call
    layout: str = "nhwc"
    bound: CErrorBound | None = None
    accuracy: Record = field(default_factory=dict)


@dataclass
class Timed:
    """Samples of one way to call a contestant. `sample` takes one, in seconds for each call."""

    contestant: Contestant
    name: str
    calls: int
    sample: Callable[[], float]
    seconds: list[float] = field(default_factory=list)


class Gable:
    """gable's C API."""

    def __init__(self, path: Path) -> None:
        self.api = ctypes.CDLL(str(path))
        self.api.gable_last_error.restype = ctypes.c_char_p
        self.api.gable_version.restype = ctypes.c_char_p
        for release in ("gable_close", "gable_plan_release", "gable_packed_release"):
            getattr(self.api, release).restype = None

    def call(self, name: str, *arguments: Any) -> None:
        if getattr(self.api, name)(*arguments) != 0:
            raise GableError(self.api.gable_last_error().decode())

    def open(self, uri: str) -> ctypes.c_void_p:
        device = ctypes.c_void_p()
        self.call("gable_open", uri.encode(), ctypes.byref(device))
        return device


class GablePlan:
    """A plan with its packed weights, released by close()."""

    def __init__(self, gable: Gable, device: ctypes.c_void_p, layer: Layer, weights: torch.Tensor) -> None:
        self.gable = gable
        self.plan = ctypes.c_void_p()
        self.packed = ctypes.c_void_p()
        gable.call("gable_plan_conv2d", device, ctypes.byref(c_conv2d(layer)), ctypes.byref(self.plan))
        gable.call("gable_pack", self.plan, pointer_of(weights), ctypes.byref(self.packed))

    def close(self) -> None:
        self.gable.api.gable_packed_release(self.packed)
        self.gable.api.gable_plan_release(self.plan)

    def kernel(self) -> str:
        text = ctypes.create_string_buffer(256)
        self.gable.call("gable_plan_kernel", self.plan, text, ctypes.c_size_t(len(text)), None)
        return text.value.decode()

    def fused(self) -> bool:
        value = ctypes.c_int()
        self.gable.call("gable_plan_fused", self.plan, ctypes.byref(value))
        return value.value != 0

    def bound(self) -> CErrorBound:
        value = CErrorBound()
        self.gable.call("gable_plan_error_bound", self.plan, ctypes.byref(value))
        return value

    def caller(self, operands: Operands, y: torch.Tensor) -> Call:
        """Runs on PyTorch's current stream. While a graph is captured that is another stream."""
        run, plan, packed = self.gable.api.gable_run, self.plan, self.packed
        x, bias, result = pointer_of(operands.x), pointer_of(operands.bias), pointer_of(y)

        def call() -> torch.Tensor:
            stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
            if run(plan, x, packed, bias, result, stream) != 0:
                raise GableError(self.gable.api.gable_last_error().decode())
            return y

        return call


def pointer_of(tensor: torch.Tensor | None) -> ctypes.c_void_p:
    return ctypes.c_void_p(tensor.data_ptr() if tensor is not None else None)


def c_conv2d(layer: Layer) -> CConv2d:
    c = layer.conv
    conv = CConv2d(groups=c["groups"], layout=int(layer.layout == "nhwc"), bias=int(layer.has_bias))
    for name in ("input", "weights", "stride", "padding", "dilation", "pool_window", "pool_stride"):
        getattr(conv, name)[:] = c[name]
    conv.dtype = ["f32", "f16", "bf16"].index(layer.listed["dtype"])
    conv.math = ["strict", "tf32", "split3", "split6"].index(layer.math)
    conv.activation = ["none", "relu", "tanh"].index(layer.activation)
    return conv


def make_operands(layer: Layer) -> Operands:
    """Outputs have a variance near one, so that tanh is not saturated."""
    c, dtype = layer.conv, layer.dtype
    terms = math.prod(c["weights"][1:])
    x = torch.rand(c["input"], device="cuda").mul_(2).sub_(1).to(dtype)
    weights = torch.rand(c["weights"], device="cuda").mul_(2).sub_(1).mul_(math.sqrt(3 / terms)).to(dtype)
    bias = torch.rand(c["weights"][0], device="cuda").sub_(0.5).to(dtype).float() if layer.has_bias else None
    return Operands(x.contiguous(memory_format=layer.memory_format), weights.contiguous(), bias)


def convolution(layer: Layer, x: torch.Tensor, weights: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    c = layer.conv
    padding = layer.symmetric_padding()
    if padding is None:
        top, left, bottom, right = c["padding"]
        x, padding = F.pad(x, (left, right, top, bottom)), [0, 0]
    return F.conv2d(x, weights, bias, c["stride"], padding, c["dilation"], c["groups"])


def pooled(layer: Layer, y: torch.Tensor) -> torch.Tensor:
    return y if layer.pool is None else F.max_pool2d(y, *layer.pool)


def activate_(layer: Layer, y: torch.Tensor) -> torch.Tensor:
    if layer.activation == "none":
        return y
    return torch.relu_(y) if layer.activation == "relu" else torch.tanh_(y)


def torch_call(layer: Layer, x: torch.Tensor, weights: torch.Tensor, bias: torch.Tensor | None) -> Call:
    """Pools before the activation. The two commute, and this order is faster."""
    return lambda: activate_(layer, pooled(layer, convolution(layer, x, weights, bias)))


def fused_call(layer: Layer, x: torch.Tensor, weights: torch.Tensor, bias: torch.Tensor | None) -> Call | None:
    """cuDNN's fused convolution with bias and relu, then the pool."""
    c, padding = layer.conv, layer.symmetric_padding()
    if layer.activation != "relu" or padding is None:
        return None
    return lambda: pooled(
        layer, torch.cudnn_convolution_relu(x, weights, bias, c["stride"], padding, c["dilation"], c["groups"])
    )


def matmul_call(layer: Layer, x: torch.Tensor, weights: torch.Tensor, bias: torch.Tensor | None) -> Call | None:
    """The layer as PyTorch's matrix product (cuBLAS); None if it isn't one."""
    if not layer.is_product():
        return None
    images, _, height, width = x.shape
    a = x.permute(0, 2, 3, 1).reshape(-1, x.shape[1])
    b = weights.flatten(1).t().contiguous()

    def call() -> torch.Tensor:
        y = a @ b if bias is None else torch.addmm(bias, a, b)
        y = y.view(images, height, width, -1).permute(0, 3, 1, 2)
        return activate_(layer, pooled(layer, y))

    return call


def torch_contestants(layer: Layer, operands: Operands, layout: str, compiled: bool) -> Iterator[Contestant]:
    memory_format = MEMORY_FORMATS[layout]
    x = operands.x.contiguous(memory_format=memory_format)
    weights = operands.weights.contiguous(memory_format=memory_format)
    bias = operands.bias.to(layer.dtype) if operands.bias is not None else None
    suffix = "" if layout == "nhwc" else " nchw"
    plain = layer.is_plain()
    eager = torch_call(layer, x, weights, bias)
    yield Contestant("pytorch:eager" + suffix, "conv2d", plain, eager, layout)
    fused = fused_call(layer, x, weights, bias)
    if fused is not None:
        yield Contestant("pytorch:fused" + suffix, "cudnn_convolution_relu", layer.pool is None, fused, layout)
    if compiled:
        torch.compiler.reset()
        yield Contestant("pytorch:compile" + suffix, "torch.compile", False, torch.compile(eager), layout)


def set_torch_math(layer: Layer) -> None:
    torch.backends.cudnn.allow_tf32 = layer.math == "tf32"
    torch.backends.cuda.matmul.allow_tf32 = layer.math == "tf32"


def f64_reference(layer: Layer, operands: Operands) -> tuple[torch.Tensor, torch.Tensor]:
    """The exact result, and the magnitude that gable's error bounds are relative to."""
    x, weights = operands.x.double().contiguous(), operands.weights.double()
    bias = operands.bias.double() if operands.bias is not None else None
    with torch.backends.cudnn.flags(enabled=True, benchmark=False):
        exact = torch_call(layer, x, weights, bias)()
        weights.abs_()
        magnitude = pooled(layer, convolution(layer, x.abs_(), weights, bias.abs() if bias is not None else None))
    return exact, magnitude


def accuracy_of(y: torch.Tensor, exact: torch.Tensor, magnitude: torch.Tensor, bound: CErrorBound | None) -> Record:
    """NaN marks an unchecked element: every comparison below is false for it."""
    error = (y.double() - exact).abs_()
    relative = float(torch.linalg.vector_norm(error) / torch.linalg.vector_norm(exact))
    if bound is None:
        max_error = float(error.max())
        return {"max_error": max_error, "error_bound": None, "relative_error": relative, "ok": relative < WRONG}
    tolerance = magnitude * bound.accumulation + exact.abs() * bound.rounding + bound.absolute
    worst = int((error / tolerance).nan_to_num_(nan=math.inf).argmax())
    max_error, error_bound = float(error.flatten()[worst]), float(tolerance.flatten()[worst])
    return {
        "max_error": max_error,
        "error_bound": error_bound,
        "relative_error": relative,
        "ok": relative < WRONG and max_error <= error_bound,
    }


def event_seconds(before: Callable[[], object], measured: Callable[[], object]) -> float:
    """`before` keeps the GPU busy while the host enqueues the measured work."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    before()
    start.record()
    measured()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1e3


def repeat(call: Call, times: int) -> None:
    for _ in range(times):
        call()


def warmed_up(call: Call) -> float:
    """Runs until PyTorch and cuDNN have chosen their kernels. Returns the approximate time of a call."""
    repeat(call, 2)
    torch.cuda.synchronize()
    first = event_seconds(call, call)
    return event_seconds(call, lambda: repeat(call, 3)) / 3 if first < 0.1 else first


def captured(call: Call, calls: int) -> torch.cuda.CUDAGraph:
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        call()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        repeat(call, calls)
    return graph


def ways_of(contestant: Contestant, sample_seconds: float) -> Iterator[Timed]:
    """The contestant's calls on a stream and in a graph. A sample has as many calls as take `sample_seconds`."""
    call = contestant.call
    calls = max(1, min(200, round(sample_seconds / warmed_up(call))))
    yield Timed(contestant, contestant.device, calls, lambda: event_seconds(call, lambda: repeat(call, calls)) / calls)
    graph = captured(call, calls)
    yield Timed(
        contestant,
        contestant.device + " graph",
        calls,
        lambda: event_seconds(graph.replay, graph.replay) / calls,
    )


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
