#!/usr/bin/env python3
"""Fits the cost model that `auto` compares CPU devices by (backends/shape_model.h), and checks it on other layers.

    bench/fit_choice.py --fit FIT.json... --check CHECK.json... [--cpu KIND] [--keep|--move|--select] [--classes C...] [--write FOLDER]

The records are those of `gable bench --file LIST --device cpu,onednn --dtype f32,bf16 --layout L --threads N --json ...`.
The first law of a class is fitted to layers of one image on one thread, the second and third to one image on two and on more threads,
the fourth to several images, these near to the first, by least squares. Then the laws of both devices are moved against each other to where `auto`
loses the least on these layers. --write puts the tables of both devices into FOLDER/cpu/cpu_shape_fits.h and
FOLDER/onednn/onednn_shape_fits.h, where FOLDER is `backends`. The features and rates are those of backends/shape_model.cpp:
change both together. With --keep the tables of the tree stand for what --fit has no layers of, and new laws of several threads are
near to these. With --move these laws are kept and only moved by the layers: for records of one run, on a machine whose clock varies.
With --select each law is kept, moved or new (near to the tree's), as by cross-validation it loses least, and keeps its level: what to do
after kernels have changed, with records of one `gable regret` of the fit's lists on each number of threads.
With --classes other classes keep the tree's laws: those in which layers that were left out would lose by new ones.

--fit and --check take records of `gable bench` and of `gable regret`. Needs numpy.

Layers whose times no law alone says are left out of the fit: windows with taps that read padding alone, which `cpu` does not compute, and
those that oneDNN is kept from its brgemm kernels for.

Times are the first quartile of each row's runs, as `gable regret` judges. Short rows of few runs are left out: some that the system
interrupted would decide. Each record's pair of times counts for itself: between two records a machine may have changed its clock.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import re
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

CLASSES = ("depthwise", "grouped", "few_channels", "pointwise", "spatial", "vectors")
# As named in tables. Two threads have laws of their own: a core alone finds other shares of caches and memory than one of four.
LOADS = {
    "one image, one thread": "OneThread",
    "one image, two threads": "TwoThreads",
    "one image, more threads": "Threads",
    "several images": "Images",
}
NEAREST = ((0, 3), (1, 2, 0, 3), (2, 1, 0, 3), (3, 0))  # by load: whose table stands for one without layers
LAYOUTS = ("nhwc", "nchw")
DTYPES = ("f32", "bf16", "f16")
DEVICES = ("cpu", "onednn")
ELEMENT = {"f32": 4, "bf16": 2, "f16": 2}
# Kinds of CPU, with the suffix of their tables. As in backends/shape_model.h: without matrix units, the same with cores that do two
# full vectors a cycle, with AMX. The first two have tables of oneDNN 2 and of oneDNN 3, beside one of cpu.
KINDS = {"vectors": "", "vectors_3": "3", "wide": "Wide", "wide_3": "Wide3", "amx": "Amx"}
CPU_KIND = {"vectors_3": "vectors", "wide_3": "wide"}  # whose tables of cpu stand, and are kept
ONEDNN_2 = ("vectors", "wide")  # whose tables are of oneDNN 2
WIDE = 2.14  # core_multiply_adds() of the CPU that the fits of "wide" come from, over that of "vectors"
# Multiply-adds a second of one core.
RATE = {
    "vectors": {"f32": 16 * 3.5e9, "bf16": 32 * 3.5e9, "f16": 32 * 3.5e9},
    "wide": {"f32": WIDE * 16 * 3.5e9, "bf16": WIDE * 32 * 3.5e9, "f16": WIDE * 32 * 3.5e9},
    "amx": {"f32": 16 * 3.5e9, "bf16": 512 * 3.5e9, "f16": 128 * 3.5e9},
}
RATE |= {kind: RATE[CPU_KIND[kind]] for kind in CPU_KIND}
BYTES, CALL, FORK = 30e9, 0.5e-6, 3e-6
CORES_PER_MEMORY = 6
LEAST_RUNS, LEAST_RUNS_LONG, LONG = 10, 5, 0.5e-3  # of a row; of one whose runs take LONG seconds or more
RIDGE, RIDGE_NEAR = 0.03, (0, 10, 10, 100)  # by load; layers of one image on several threads are many
# Of sharpened(): the log of times within which a choice is half wrong, the ridge, the steps, and the least number of layers.
BLUR, SHARP_RIDGE, STEPS, LEAST_LAYERS = 0.06, 100.0, 300, 20
# Of selected(): the ridge towards the tree's law, the parts of the cross-validation, the least number of layers, and the mean regret by which
# another law must be better. A layer's regret above WORST counts twice.
RIDGE_TREE, PARTS, LEAST_SELECTED, LEAST_GAIN, WORST = 10.0, 4, 40, 0.001, math.log(1.3)
# Times on lists of layers in a row are shorter than in programs: the medians of measured over predicted times of both devices, by kind of
# CPU, load, layout and type (bench/results/tried.md). They change nothing between these devices, and decide about trips to a GPU.
LONGER = {("amx", 1, "nhwc", "f32"): 1.1, ("amx", 1, "nhwc", "bf16"): 1.05}
MARGIN = 1.03  # as in backends/registry/auto_device.cpp


@dataclass(frozen=True)
class Layer:
    """One convolution with the seconds of each device."""

    problem: str
    dtype: str
    layout: str
    seconds: dict[str, float]
    threads: int = 1
    kind: str = "vectors"  # of the CPU, of KINDS

    @property
    def extents(self) -> dict[str, int]:
        found = {key: int(value) for key, value in re.findall(r"(mb|[iod][chw]|[kspd][hw]|g)(\d+)", self.problem)}
        for key, missing in (("g", 1), ("mb", 1), ("ih", 1), ("kh", 1), ("sh", 1), ("ph", 0), ("dh", 0)):
            found.setdefault(key, missing)
        for wide, high in (("iw", "ih"), ("kw", "kh"), ("sw", "sh"), ("pw", "ph"), ("dw", "dh")):
            found.setdefault(wide, found[high])
        found.setdefault("oh", out(found, "h"))
        found.setdefault("ow", out(found, "w") if found["iw"] != found["ih"] or found["kw"] != found["kh"] else found["oh"])
        return found


def kept_taps(e: dict[str, int], axis: str) -> tuple[int, int]:
    """The first tap that some output reads the image with, and how many there are (backends/cpu/cropped.cpp)."""
    size, outputs, taps, stride, pad, dilation = (e[one + axis] for one in "iokspd")
    dilation += 1
    before = max(0, math.ceil((pad - (outputs - 1) * stride) / dilation))
    begin = min(before, pad // dilation, taps - 1)
    return begin, min(max(math.ceil((size + pad) / dilation), begin + 1), taps) - begin


def cropped(layer: Layer) -> Layer:
    """The layer as `cpu` computes it: without the taps that no output reads the image with."""
    e = layer.extents
    kept = {axis: kept_taps(e, axis) for axis in "hw"}
    if all(kept[axis] == (0, e["k" + axis]) for axis in "hw"):
        return layer
    for axis, (begin, count) in kept.items():
        e["k" + axis] = count
        e["p" + axis] -= begin * (e["d" + axis] + 1)
    return replace(layer, problem="".join(f"{name}{value}" for name, value in e.items()))


def as_computed(layer: Layer, device: str) -> Layer:
    return cropped(layer) if device == "cpu" else layer


def avoids_brgemm(layer: Layer) -> bool:
    """Whether oneDNN is kept from its brgemm kernels (backends/onednn/recipe.cpp): its times have factors of their own."""
    e = layer.extents
    channels, taps = e["ic"] // e["g"], e["kh"] * e["kw"]
    blind = any(taps_inside(e, column) == 0 for column in {*range(min(e["ow"], e["pw"] + 1)), e["ow"] - 1})
    endless = layer.dtype != "f32" and 1 < e["g"] <= 16 and channels == 1 and e["kw"] > 14
    one_less = channels > 32 and channels % 32 == 31
    crashes = layer.kind in ONEDNN_2 and layer.dtype == "bf16" and one_less and taps > 64
    jumps = e["ow"] == 1 and e["sw"] > 1 or e["sh"] > e["kh"] or e["sw"] > e["kw"]
    return blind or endless or crashes or (taps > 1 and jumps)


def taps_inside(e: dict[str, int], column: int) -> int:
    first = column * e["sw"] - e["pw"]
    return sum(0 <= first + tap * (e["dw"] + 1) < e["iw"] for tap in range(e["kw"]))


def is_usual(layer: Layer) -> bool:
    """Whether the laws alone say its times, so that they can be fitted to it."""
    return cropped(layer) is layer and not avoids_brgemm(layer)


def out(e: dict[str, int], axis: str) -> int:
    return (e["i" + axis] + 2 * e["p" + axis] - (e["k" + axis] - 1) * (e["d" + axis] + 1) - 1) // e["s" + axis] + 1


def load_of(layer: Layer) -> int:
    """A place in LOADS."""
    return 3 if layer.extents["mb"] > 1 else min(layer.threads, 3) - 1


def shape_class(e: dict[str, int]) -> str:
    if e["g"] > 1:
        return "depthwise" if e["ic"] == e["g"] else "grouped"
    if e["oh"] * e["ow"] * e["kh"] * e["kw"] == 1:
        return "vectors"
    if e["ic"] <= 8:
        return "few_channels"
    return "pointwise" if e["kh"] * e["kw"] == 1 else "spatial"


def roof(layer: Layer) -> float:
    e, dtype, threads = layer.extents, layer.dtype, layer.threads
    weights = e["oc"] * e["ic"] // e["g"] * e["kh"] * e["kw"]
    products = e["mb"] * e["oh"] * e["ow"] * weights
    elements = e["mb"] * (e["ic"] * e["ih"] * e["iw"] + e["oc"] * e["oh"] * e["ow"]) + weights
    bandwidth = BYTES * min(threads, CORES_PER_MEMORY)
    return max(products / (RATE[layer.kind][dtype] * threads), ELEMENT[dtype] * elements / bandwidth) + (FORK if threads > 1 else CALL)


def log_waste(channels: int, lanes: int) -> float:
    return math.log(math.ceil(channels / lanes) * lanes / channels)


def log_half_panel(outputs: int) -> float:
    """What a panel of 32 outputs that is half empty adds to the products. Up to 16 outputs take half a panel."""
    return log_waste(outputs, 32) - log_waste(outputs, 16) if outputs > 16 else 0.0


def share_beyond_tiles(inputs: int, outputs: int) -> float:
    """What layers of more than 64 input channels lose, whose weights tiles of matrix units can't keep: the less, the more channels share it."""
    return 64 / inputs if inputs > 64 and outputs > 16 else 0.0


def first_layer(e: dict[str, int]) -> list[float]:
    """Whether windows leave pixels out, whether they are patches, and what a row of one, with all channels, leaves of vectors."""
    if shape_class(e) != "few_channels":
        return [0.0] * 4
    row = e["ic"] * e["kw"]
    return [
        1 if e["kh"] < e["sh"] or e["kw"] < e["sw"] else 0,
        1 if e["kh"] == e["sh"] > 1 else 0,
        log_waste(row, 16),
        log_waste(row, 32),
    ]


def group_blocks(e: dict[str, int]) -> list[float]:
    """Whether all groups have 16 channels or multiples, in and out, and whether they have 4, 8 or 12."""
    if shape_class(e) != "grouped":
        return [0.0] * 2
    both = (e["ic"] // e["g"], e["oc"] // e["g"])
    return [
        1 if all(count % 16 == 0 for count in both) else 0,
        1 if all(count % 4 == 0 and count < 16 for count in both) else 0,
    ]


def weights_share(e: dict[str, int]) -> float:
    """How much of what a layer reads and writes are weights: with few pixels, they are nearly all."""
    weights = e["oc"] * e["ic"] // e["g"] * e["kh"] * e["kw"]
    return math.log1p(weights / (e["ic"] * e["ih"] * e["iw"] + e["oc"] * e["oh"] * e["ow"]))


def taps_beyond(e: dict[str, int]) -> float:
    """log of a window's taps over the pixels of the image that it can read at once: the others read padding.

    A window of twice the image's size or more has taps that no output reads the image with: no law was fitted to these."""
    return math.log(min(max(1.0, e["kh"] / e["ih"]), 2.0) * min(max(1.0, e["kw"] / e["iw"]), 2.0))


def gathers_pixels(e: dict[str, int]) -> float:
    """Whether cpu's depthwise kernel for NCHW takes rows apart by phases of a stride above 2 (the rows of large planes)."""
    large = e["ih"] * e["iw"] > 1024 or e["ow"] >= 32
    return 1.0 if shape_class(e) == "depthwise" and e["sw"] > 2 and large else 0.0


def features(layer: Layer) -> list[float]:
    return features_of(layer.problem, layer.dtype, layer.threads, layer.kind)


@functools.lru_cache(maxsize=None)
def features_of(problem: str, dtype: str, threads: int, kind: str) -> list[float]:
    layer = Layer(problem, dtype, "nhwc", {}, threads, kind)
    e = layer.extents
    size = math.log(min(roof(layer) * 1e6, 2e4))
    group_c, group_k = e["ic"] // e["g"], e["oc"] // e["g"]
    pixels = math.log(min(e["oh"] * e["ow"], 1 << 16))
    return [
        1,
        size,
        size * size / 10,
        math.log(min(group_c, 4096)),
        math.log(min(group_k, 4096)),
        pixels,
        pixels * pixels / 10,
        math.log(min(e["kh"] * e["kw"], 121)),
        1 if e["sh"] > 1 or e["sw"] > 1 else 0,
        log_waste(group_c, 16),
        log_waste(group_c, 4),
        log_waste(group_k, 16),
        log_waste(group_k, 8),
        log_waste(e["oc"], 16),
        log_waste(e["ow"], 16),
        math.log(min(e["g"], 4096)),
        math.log(min(layer.threads, 12)),
        1 if shape_class(e) == "depthwise" and e["oc"] < 16 and e["oc"] != 8 else 0,
        log_waste(group_k, 32),
        1 if e["kh"] > e["kw"] else 0,
        *first_layer(e),
        *group_blocks(e),
        weights_share(e),
        taps_beyond(e),
        gathers_pixels(e),
        log_half_panel(group_k),
        share_beyond_tiles(group_c, group_k),
    ]


COUNT = len(features(Layer("mb1ic16ih4oc8kh1", "f32", "nhwc", {})))  # of features; tables that have fewer are older


def dot(a: Sequence[float], b: Sequence[float]) -> float:
    return sum(x * y for x, y in zip(a, b))


def least_squares(xs: list[list[float]], ys: list[float], near: list[float] | None, ridge: float) -> list[float]:
    """The weights of least squares; where the layers don't say, those of `near`, or 0."""
    x, y = np.array(xs), np.array(ys)
    start = np.array(near) if near else np.zeros(x.shape[1])
    penalty = ridge * np.eye(x.shape[1])
    penalty[0, 0] = 0
    return (start + np.linalg.solve(x.T @ x + penalty, x.T @ (y - x @ start))).tolist()


@dataclass(frozen=True)
class Fit:
    weights: list[float]
    least: float
    most: float

    def log(self, x: list[float]) -> float:
        return min(max(dot(self.weights, x), self.least), self.most)

    def seconds(self, layer: Layer) -> float:
        return roof(layer) * math.exp(self.log(features(layer)))

    def moved(self, share: float, change: list[float], xs: list[list[float]]) -> Fit:
        """The law with `share` of `change` added, and limits that let it take effect on `xs`."""
        weights = [a + share * b for a, b in zip(self.weights, change)]
        limits = [self.log(x) + share * dot(change, x) for x in xs]
        return Fit(weights, min([self.least, *limits]), max([self.most, *limits]))

    def longer(self, factor: float) -> Fit:
        """The law of `factor` times the times. The first feature is 1."""
        more = math.log(factor)
        return Fit([self.weights[0] + more, *self.weights[1:]], self.least + more, self.most + more)


def fit(layers: Sequence[Layer], device: str, near: Fit | None = None, ridge: float | None = None) -> Fit:
    """Least squares, and again without the layers that lie far off: runs that something else disturbed."""
    xs = [features(layer) for layer in layers]
    ys = [math.log(layer.seconds[device] / roof(layer)) for layer in layers]
    start = near.weights if near else None
    if ridge is None:
        ridge = RIDGE_NEAR[load_of(layers[0])] if near else RIDGE
    weights = least_squares(xs, ys, start, ridge)
    for _ in range(2):
        off = [abs(dot(weights, x) - y) for x, y in zip(xs, ys)]
        limit = 6 * max(0.03, sorted(off)[len(off) // 2])
        kept = [i for i, value in enumerate(off) if value < limit]
        weights = least_squares([xs[i] for i in kept], [ys[i] for i in kept], start, ridge)
    return Fit(weights, min(ys[i] for i in kept), max(ys[i] for i in kept))


def standardized(xs: list[list[float]]) -> tuple[list[list[float]], list[tuple[int, float, float]]]:
    """The features that vary, as (x - mean) / deviation, after a 1; and place, mean and deviation of each."""
    scales = []
    for place in range(1, len(xs[0])):
        column = [x[place] for x in xs]
        mean = sum(column) / len(column)
        deviation = math.sqrt(sum((value - mean) ** 2 for value in column) / len(column))
        if deviation > 1e-6:
            scales.append((place, mean, deviation))
    return [[1.0] + [(x[place] - mean) / deviation for place, mean, deviation in scales] for x in xs], scales


def least_regret(rows: list[list[float]], margins: list[float], logs: list[float]) -> list[float]:
    """What to add to the law of the second device's gain, margins, so that the sum of regrets is least, by descent (Adam).

    logs are the measured gains. A layer's regret is |log| where the signs differ; a logistic function stands for that step."""
    row, margin, log = np.array(rows), np.array(margins), np.array(logs)
    sign, loss = np.where(log > 0, 1, -1), np.minimum(abs(log), 0.7)
    found = first = second = np.zeros(row.shape[1])
    for step in range(1, STEPS + 1):
        wrong = 1 / (1 + np.exp(np.clip(sign * (margin + row @ found) / BLUR, -40, 40)))
        slope = 2 * SHARP_RIDGE * found - (sign * loss / BLUR * wrong * (1 - wrong)) @ row
        first, second = 0.9 * first + 0.1 * slope, 0.99 * second + 0.01 * slope * slope
        mean, square = first / (1 - 0.9**step), second / (1 - 0.99**step)
        found = found - 0.02 * min(1, 2 * (1 - step / STEPS)) * mean / (np.sqrt(square) + 1e-8)
    return found.tolist()


def sharpened(layers: Sequence[Layer], laws: tuple[Fit, Fit]) -> tuple[Fit, Fit]:
    """Both laws, moved against each other so that `auto` loses the least on these layers; one, where that of cpu is kept.

    Least squares care as much for layers on which one device takes twice the other's time, where any law is right, as for those that
    decide."""
    xs = [features(layer) for layer in layers]
    rows, scales = standardized(xs)
    cpu, onednn = ([law.log(x) for x in xs] for law in laws)
    margins = [a - b - math.log(MARGIN) for a, b in zip(cpu, onednn)]
    logs = [math.log(layer.seconds["cpu"] / layer.seconds["onednn"]) for layer in layers]
    found = least_regret(rows, margins, logs)
    shares = (0, -1) if layers[0].kind in CPU_KIND else (0.5, -0.5)
    change = [0.0] * len(xs[0])
    for (place, mean, deviation), value in zip(scales, found[1:]):
        change[place] = value / deviation
        change[0] -= mean * value / deviation
    change[0] += found[0]
    return tuple(law.moved(share, change, xs) for law, share in zip(laws, shares))


def enough_runs(timing: dict[str, float]) -> bool:
    return timing["runs"] >= (LEAST_RUNS_LONG if timing["fastest"] >= LONG else LEAST_RUNS)


def judged(document: dict, kind: str) -> list[Layer]:
    """The layers of a record of `gable regret`."""
    threads = int(re.search(r"threads=(\d+)", document["device"])[1])
    found = []
    for row in document["layers"]:
        seconds = {time["device"].partition("?")[0]: time["seconds"] for time in row["times"]}
        if set(seconds) == set(DEVICES):
            found.append(Layer(row["problem"], row["dtype"], row["layout"], seconds, threads, kind))
    return found


def read(files: Iterable[str], kind: str = "vectors") -> list[Layer]:
    layers = []
    for file in files:
        document = json.loads(Path(file).read_text(encoding="utf-8"))
        layers += judged(document, kind) if "layers" in document else timed(document, kind)
    return layers


def timed(document: dict, kind: str) -> list[Layer]:
    """The layers of a record of `gable bench`."""
    found: dict[tuple[str, str, str, int], dict[str, float]] = {}
    for row in document["measurements"]:
        if not enough_runs(row["T"]):
            continue
        key = (row["problem"], row["dtype"], row["layout"], row["threads"])
        seconds = found.setdefault(key, {})
        device = row["device"].partition("?")[0]
        seconds[device] = min(seconds.get(device, math.inf), row["T"]["q1"])
    both = [(key, seconds) for key, seconds in found.items() if set(seconds) >= set(DEVICES)]
    return [Layer(problem, dtype, layout, seconds, threads, kind) for (problem, dtype, layout, threads), seconds in both]


Fits = dict[tuple[str, int, str, str, str], Fit]  # by device, load, layout, dtype, class
Origins = dict[tuple[int, str, str], str]  # how many layers a table comes from, by load, layout, dtype


def suffix_of(kind: str) -> str:
    return "".join(f"_{part}" for part in kind.split("_") if part != "vectors")


def header_file(folder: Path, device: str, kind: str) -> Path:
    if device == "cpu":
        kind = CPU_KIND.get(kind, kind)
    return folder / device / f"{device}_shape_fits{suffix_of(kind)}.h"


def shipped_origins(folder: Path, kind: str) -> Origins:
    """How many layers the tables in `folder` were fitted to or moved by, where they say so."""
    text = header_file(folder, DEVICES[1], kind).read_text(encoding="utf-8")
    found = dict(re.findall(r"(k\w+)\{\{\s*// ((?:from|moved by) \d+ layers)", text))
    places = [(load, layout, dtype) for load in range(len(LOADS)) for layout in LAYOUTS for dtype in DTYPES]
    names = {place: table_name(DEVICES[1], kind, *place) for place in places}
    return {place: found[name] for place, name in names.items() if name in found}


def origins_of(layers: Iterable[Layer], word: str = "from") -> Origins:
    counts = Counter((load_of(one), one.layout, one.dtype) for one in layers)
    return {place: f"{word} {count} layers" for place, count in counts.items()}


def shipped_tables(folder: Path, kind: str) -> Fits:
    """The fits of the headers in `folder`, which is `backends`, without those that stand for others."""
    fits: Fits = {}
    places = [(load, layout, dtype) for load in range(len(LOADS)) for layout in LAYOUTS for dtype in DTYPES]
    for device in DEVICES:
        classes, _, index = header_file(folder, device, kind).read_text(encoding="utf-8").partition("// Where no layers")
        tables = dict(re.findall(r"ClassFits (k\w+)\{\{(.*?)\n\}\};", classes, re.DOTALL))
        names = [name for name in re.findall(r"\bk\w+\b", index) if name in tables]
        for place, name in zip(places, names, strict=True):
            if name != table_name(device, kind, *place):
                continue
            rows = re.findall(r"ShapeFit\{\s*\{(.*?)\},\s*(\S+),\s*(\S+)\},", tables[name], re.DOTALL)
            for class_name, (weights, least, most) in zip(CLASSES, rows, strict=True):
                numbers = [float(one) for one in weights.split(",")]
                fits[device, *place, class_name] = Fit(numbers + [0.0] * (COUNT - len(numbers)), float(least), float(most))
    return fits


def fit_all(layers: Sequence[Layer], kept: Fits | None = None, only_move: bool = False) -> Fits:
    """`kept` stand for what there are no layers of. With only_move they are also what layers move, without least squares."""
    groups: dict[tuple[int, str, str, str], list[Layer]] = {}
    for one in layers:
        groups.setdefault((load_of(one), one.layout, one.dtype, shape_class(one.extents)), []).append(one)
    fits: Fits = dict(kept or {})
    least_squares_of = dict(fits)
    for load, *rest in sorted(groups):
        these = groups[load, *rest]
        for device in DEVICES:
            if only_move or (device == "cpu" and these[0].kind in CPU_KIND):
                least_squares_of[device, load, *rest] = shipped(kept or {}, device, load, *rest)
                continue
            near = least_squares_of.get((device, 0, *rest)) if load else None
            least_squares_of[device, load, *rest] = fit(these, device, near)
        laws = tuple(least_squares_of[device, load, *rest] for device in DEVICES)
        if len(these) >= LEAST_LAYERS:
            laws = sharpened(these, laws)
        factor = 1.0 if only_move else LONGER.get((these[0].kind, load, *rest[:2]), 1.0)
        fits.update({(device, load, *rest): law.longer(factor) for device, law in zip(DEVICES, laws)})
    return fits


def candidates(layers: Sequence[Layer], kept: tuple[Fit, Fit]) -> Iterable[tuple[str, tuple[Fit, Fit]]]:
    """Pairs of laws that may replace the kept ones: these moved against each other, and new ones near to them. Of cpu's law only where
    it is not that of another version of oneDNN too. Both pairs have the level of the kept one, which decides about trips to a GPU."""
    yield "moved", sharpened(layers, kept)
    new = [
        law if device == "cpu" and layers[0].kind in CPU_KIND else fit(layers, device, law, RIDGE_TREE) for device, law in zip(DEVICES, kept)
    ]
    few = [features(one) for one in layers if one.threads <= 4]
    pair = sharpened(layers, (new[0], new[1]))
    if layers[0].kind not in CPU_KIND and few:
        more = [float(np.median([before.log(x) - after.log(x) for x in few])) for before, after in zip(kept, pair)]
        pair = tuple(law.longer(math.exp(sum(more) / 2)) for law in pair)
    yield "new", pair


def losses(layers: Sequence[Layer], laws: tuple[Fit, Fit]) -> list[float]:
    """The logarithms of the layers' regrets."""
    found = []
    for one in layers:
        cpu, onednn = (law.log(features(one)) for law in laws)
        pick = "onednn" if onednn + math.log(MARGIN) < cpu else "cpu"
        found.append(math.log(one.seconds[pick] / min(one.seconds.values())))
    return found


def weighed(regrets: Sequence[float]) -> float:
    return sum(one + max(0.0, one - WORST) for one in regrets) / len(regrets)


def selected(layers: Sequence[Layer], kept: Fits) -> tuple[Fits, Origins]:
    """The kept laws, and those that lose less than them on layers that they were not fitted to."""
    groups: dict[tuple[int, str, str, str], list[Layer]] = {}
    for one in layers:
        groups.setdefault((load_of(one), one.layout, one.dtype, shape_class(one.extents)), []).append(one)
    fits, counts = dict(kept), Counter()
    # Each law by its own place, so that a new one does not stand for its neighbours too.
    fits.update({(device, *key): shipped(kept, device, *key) for key in groups for device in DEVICES})
    for key, these in sorted(groups.items()):
        if len(these) < LEAST_SELECTED:
            continue
        before = tuple(shipped(kept, device, *key) for device in DEVICES)
        regrets = {"kept": losses(these, before)}
        for part in range(PARTS):
            others = [one for at, one in enumerate(these) if at % PARTS != part]
            for name, laws in candidates(others, before):
                regrets.setdefault(name, []).extend(losses(these[part::PARTS], laws))
        best = min(regrets, key=lambda name: weighed(regrets[name]) + (0 if name == "kept" else LEAST_GAIN))
        words = ", ".join(f"{name} {math.exp(sum(one) / len(one)):.4f}" for name, one in regrets.items())
        print(f"{' '.join(map(str, key)):<32} {len(these):>5} layers: {words}: {best}")
        if best != "kept":
            fits.update({(device, *key): law for device, law in zip(DEVICES, dict(candidates(these, before))[best])})
            counts[key[:3]] += len(these)
    return fits, {place: f"moved by {count} layers" for place, count in counts.items()}


def predicted(layer: Layer, fits: Fits, device: str) -> float:
    """By the law alone: without the factors that oneDNN has where it avoids brgemm."""
    computed = as_computed(layer, device)
    key = (load_of(layer), layer.layout, layer.dtype, shape_class(computed.extents))
    return shipped(fits, device, *key).seconds(computed)


def pick(layer: Layer, fits: Fits) -> str:
    cpu, onednn = (predicted(layer, fits, device) for device in DEVICES)
    return "onednn" if onednn * MARGIN < cpu else "cpu"


def check(layers: Sequence[Layer], fits: Fits, title: str) -> None:
    for layout in LAYOUTS:
        for dtype in DTYPES:
            these = [one for one in layers if one.layout == layout and one.dtype == dtype]
            if not these:
                continue
            ratios = [(one.seconds[pick(one, fits)] / min(one.seconds.values()), one) for one in these]
            first = [one.seconds["cpu"] / min(one.seconds.values()) for one in these]
            geo = math.exp(sum(math.log(ratio) for ratio, _ in ratios) / len(ratios))
            geo_first = math.exp(sum(map(math.log, first)) / len(first))
            print(
                f"{title:<6} {layout} {dtype:<4} {len(these):>4} layers: geo {geo:.4f}, worst {max(ratios, key=lambda r: r[0])[0]:.2f}, "
                f"{sum(ratio > 1.05 for ratio, _ in ratios)} above 1.05; always cpu: geo {geo_first:.4f}, worst {max(first):.2f}"
            )
            for ratio, one in sorted(ratios, key=lambda r: -r[0])[:5]:
                if ratio > 1.1:
                    print(f"         {ratio:.2f} {one.problem} picked {pick(one, fits)}")


def shipped(fits: Fits, device: str, load: int, layout: str, dtype: str, name: str) -> Fit:
    """The fit, or the nearest one where no layers were measured: of one image, of the other 16-bit type, of NHWC, of 1x1."""
    for near_name in (name, "pointwise") if name == "vectors" else (name,):
        for near_layout in (layout, "nhwc"):
            for near_dtype in (dtype, "bf16"):
                for near_load in NEAREST[load]:
                    found = fits.get((device, near_load, near_layout, near_dtype, near_name))
                    if found:
                        return found
    sys.exit(f"fit_choice.py: no layers of {device}, {layout}, {dtype}, {name} among --fit")


def number(value: float) -> str:
    return f"{value:.4g}"


def row(one: Fit) -> str:
    return f"ShapeFit{{{{{', '.join(map(number, one.weights))}}}, {number(one.least)}, {number(one.most)}}}"


def class_table(fits: Fits, device: str, load: int, layout: str, dtype: str) -> str:
    """The fits of all classes; equal for those that share them."""
    rows = (f"{row(shipped(fits, device, load, layout, dtype, name))},  // {name}" for name in CLASSES)
    return "\n".join(rows)


def table_name(device: str, kind: str, load: int, layout: str, dtype: str) -> str:
    if device == "cpu":
        kind = CPU_KIND.get(kind, kind)
    short = list(LOADS.values())[load]
    return f"k{device.capitalize()}{KINDS[kind]}{short}{layout.capitalize()}{dtype.capitalize()}"


def longer_words(kind: str) -> str:
    if kind != "amx":
        return ""
    return (
        "// Not by the fit alone: all laws of two threads in NHWC are longer by 1.1 in f32 and 1.05 in bf16, for cpu and oneDNN\n"
        "// alike, the medians of measured over predicted times (bench/results/tried.md). They decide about trips to a GPU.\n"
    )


def header(fits: Fits, device: str, origins: Origins, kind: str) -> str:
    """Each class table that differs, with a name and how many layers it was fitted to, and the table of those names."""
    if device == "cpu":
        kind = CPU_KIND.get(kind, kind)
    names: dict[str, str] = {}  # by class table
    tables, index = [], []
    for load, words in enumerate(LOADS):
        index.append(f"{{{{  // {words}: NHWC, NCHW; f32, bf16, f16")
        for layout in LAYOUTS:
            these = []
            for dtype in DTYPES:
                table = class_table(fits, device, load, layout, dtype)
                if table not in names:
                    names[table] = table_name(device, kind, load, layout, dtype)
                    origin = origins.get((load, layout, dtype))
                    comment = f"  // {origin}" if origin else ""
                    tables.append(f"inline constexpr ClassFits {names[table]}{{{{{comment}\n{table}\n}}}};\n")
                these.append(names[table])
            index.append(f"{{{{{', '.join(these)}}}}},")
        index.append("}},")
    words = {
        "vectors": "",
        "vectors_3": " 3",
        "wide": ", on CPUs of full-width AVX-512",
        "wide_3": " 3, on CPUs of full-width AVX-512",
        "amx": ", on CPUs with AMX",
    }[kind]
    all_tables, all_names = "\n".join(tables), "\n".join(index)
    return (
        f"// The time of convolutions on {device}{words}: bench/fit_choice.py wrote this from measured layers.\n"
        "// Tables that don't say of how many are older. See backends/shape_model.h and bench/results/README.md.\n"
        f"{longer_words(kind)}"
        "#pragma once\n\n"
        '#include "backends/shape_model.h"\n\n'
        "namespace gable {\n\n"
        f"{all_tables}\n"
        "// Where no layers were measured, the table of the nearest ones that were.\n"
        f"inline constexpr ShapeFits k{device.capitalize()}ShapeFits{KINDS[kind]}{{{{\n{all_names}\n}}}};\n\n"
        "}  // namespace gable\n"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fit", nargs="+", required=True, help="records to fit to")
    parser.add_argument("--check", nargs="*", default=[], help="records of other layers")
    parser.add_argument("--cpu", choices=KINDS, default="vectors", help="what the records are of; each kind has tables of its own")
    parser.add_argument("--keep", action="store_true", help="keep the tree's tables where --fit has no layers")
    parser.add_argument("--move", action="store_true", help="the same, and only move the tree's laws by the layers")
    parser.add_argument("--select", action="store_true", help="keep, move or replace each of the tree's laws, by cross-validation")
    parser.add_argument("--classes", nargs="+", choices=CLASSES, default=CLASSES, help="fit laws of these classes; with --keep or --move")
    parser.add_argument("--write", type=Path, help="the folder `backends`, to write the tables into")
    options = parser.parse_args(arguments)
    layers = [one for one in read(options.fit, options.cpu) if is_usual(one) and shape_class(one.extents) in options.classes]
    tree = Path(__file__).resolve().parents[1] / "backends"
    keep = options.keep or options.move or options.select
    kept = shipped_tables(tree, options.cpu) if keep else None
    if options.select:
        fits, changed = selected(layers, kept)
    else:
        fits, changed = fit_all(layers, kept, options.move), origins_of(layers, "moved by" if options.move else "from")
    origins = (shipped_origins(tree, options.cpu) if keep else {}) | changed
    check(layers, fits, "fit")
    check(read(options.check, options.cpu), fits, "check")
    if options.write:
        for device in DEVICES[1:] if options.cpu in CPU_KIND else DEVICES:
            file = header_file(options.write, device, options.cpu)
            file.write_text(header(fits, device, origins, options.cpu), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
