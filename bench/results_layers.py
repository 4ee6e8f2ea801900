"""Reads records of layers that gable and a peer ran in turn: kind, problem and ratio of each layer, for results_summary.py.

A record is a study of `gable bench` or compare_pytorch.py (`measurements`), lists of several runs (`lists`), or a survey of
random layers (`layers`). A ratio is the peer's time over gable's: of a study by least medians, on a GPU inside a CUDA graph;
of several runs the median of their ratios.
"""

from __future__ import annotations

import re
import statistics
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace

PEERS = ("onednn", "pytorch", "cudnn")
TYPES = ("f32", "bf16", "f16", "tf32", "split3", "split6", "all types")


@dataclass(frozen=True)
class Kind:
    """How a list of layers ran. `dtype` is one of TYPES: f32 with another math goes by the math's name."""

    dtype: str
    layout: str = "nhwc"
    threads: int = 0  # of a CPU
    avx2: bool = False
    batch: str = ""  # of a GPU, and of a CPU where most layers have more than one image: 32, or 1 to 32

    def label(self) -> str:
        parts = [self.dtype, "AVX2" * self.avx2, "NCHW" * (self.layout == "nchw")]
        parts += [f"{self.threads} threads" * (self.threads > 1), f"batch {self.batch}" * bool(self.batch)]
        return ", ".join(part for part in parts if part)

    def order(self) -> tuple:
        return self.threads, self.layout == "nchw", self.avx2, TYPES.index(self.dtype), self.batch


@dataclass(frozen=True)
class Sample:
    """The layers of one kind in a record: problem and ratio of each."""

    record: str
    kind: Kind
    layers: tuple[tuple[str, float], ...]

    def ratios(self) -> list[float]:
        return [ratio for _, ratio in self.layers]


@dataclass(frozen=True)
class Shape:
    """What classes of layers are made of, from the name of a problem, such as g32mb1ic64ih56oc64oh28kh3sh2ph1."""

    groups: int
    batch: int
    channels: int
    outputs: int
    pixels: int  # of an output image
    window: tuple[int, int]

    @staticmethod
    def of(problem: str) -> Shape:
        found = {key: int(value) for key, value in re.findall(r"([a-z]+)(\d+)", problem)}
        height, kernel = found.get("oh", found["ih"]), found.get("kh", 1)
        pixels = height * found.get("ow", found.get("iw", height))
        window = (kernel, found.get("kw", kernel))
        return Shape(found.get("g", 1), found.get("mb", 1), found["ic"], found["oc"], pixels, window)


CLASSES = (
    "1x1 large",
    "1x1 small",
    "1x1 few",
    "3x3",
    "other windows",
    "few input channels",
    "groups",
    "depthwise 3x3",
    "depthwise 5x5",
    "depthwise, row or column",
    "depthwise, other",
    "vectors",
)


def class_of(problem: str) -> str:
    shape = Shape.of(problem)
    if shape.groups > 1 and shape.groups == shape.channels:
        if shape.window in ((3, 3), (5, 5)):
            return f"depthwise {shape.window[0]}x{shape.window[1]}"
        return "depthwise, row or column" if 1 in shape.window else "depthwise, other"
    if shape.groups > 1:
        return "groups"
    if shape.window == (1, 1) and shape.pixels == 1:
        return "vectors"
    if shape.channels <= 8:
        return "few input channels"
    if shape.window == (1, 1):
        few = min(shape.channels, shape.outputs) < 64
        return "1x1 few" if few else "1x1 large" if shape.pixels > 196 else "1x1 small"
    return "3x3" if shape.window == (3, 3) else "other windows"


Ratios = Iterator[tuple[Kind, str, float]]  # kind, problem, ratio


def of_study(record: dict) -> Ratios:
    """Layers that gable and a peer ran. With graphs, times outside of them do not count."""
    rows = record["measurements"]
    if any(row["device"].endswith(" graph") for row in rows):
        rows = [row for row in rows if row["device"].endswith(" graph")]
    ours: dict[tuple, list[float]] = defaultdict(list)
    peers: dict[tuple, list[float]] = defaultdict(list)
    kinds: dict[tuple, Kind] = {}
    for row in rows:
        dtype = row["dtype"] if row.get("math", "strict") == "strict" else row["math"]
        key = (row["name"], row["problem"], dtype, row["layout"])
        (peers if row["device"].startswith(PEERS) else ours)[key].append(row["T"]["seconds"])
        if key not in kinds and not row["device"].startswith(PEERS):
            threads = 0 if row["device"].startswith("cuda") else row["threads"]
            kinds[key] = Kind(dtype, row["layout"], threads, row["device"].startswith("cpu:avx2"))
    for key in ours.keys() & peers.keys():
        yield kinds[key], key[1], min(peers[key]) / min(ours[key])


def runs_of(layer: dict, *, fastest: bool = False) -> list[float]:
    """The ratios of a layer's runs on a CPU, or that of the fastest ones; of two trees in turn of the newer one, which comes last."""
    times = {key.removesuffix("_us"): value for key, value in layer.items()}
    if "cpu" not in times:
        return runs_of(list(layer.values())[-1], fastest=fastest)
    if fastest:
        return [min(times["onednn"]) / min(times["cpu"])]
    return [peer / ours for ours, peer in zip(times["cpu"], times["onednn"], strict=True)]


def of_lists(record: dict) -> Ratios:
    """Lists of one kind, say of several cores, are runs of the same layers."""
    runs: dict[tuple[Kind, str], list[float]] = defaultdict(list)
    for one in record["lists"]:
        if "rows" in one:  # a GPU's: nhwc-f16-b32
            *layout, dtype, batch = one["list"].split("-")
            kind = Kind(dtype, *layout, batch=batch.removeprefix("b"))
            for name, layer in one["rows"].items():
                runs[kind, name] += [layer["ratio"]] if "ratio" in layer else []
        else:
            kind = Kind(one["dtype"], one["layout"], one["threads"], one.get("device") == "cpu:avx2")
            for name, layer in one["layers"].items():
                runs[kind, name] += runs_of(layer, fastest="of_fastest" in one)
    for (kind, name), ratios in runs.items():
        if ratios:
            yield kind, name.split()[-1], statistics.median(ratios)


def of_survey(record: dict) -> Ratios:
    for layer in record["layers"]:
        if "onednn_us" in layer:
            yield Kind(layer["dtype"], layer["layout"], 1), layer["problem"], layer["onednn_us"] / layer["us"]
        else:
            yield Kind("all types"), layer["problem"], layer["ratio"]


def batch_of(problems: list[str], *, gpu: bool) -> str:
    batches = [Shape.of(problem).batch for problem in problems]
    if gpu and min(batches) < max(batches):
        return f"{min(batches)} to {max(batches)}"
    usual = statistics.mode(batches)
    return str(usual) if gpu or usual > 1 else ""


def samples(record: dict, name: str, *, gpu: bool = False) -> list[Sample]:
    read = of_study if "measurements" in record else of_lists if "lists" in record else of_survey
    layers: dict[Kind, list[tuple[str, float]]] = defaultdict(list)
    for kind, problem, ratio in read(record):
        layers[kind].append((problem, ratio))
    return [
        Sample(name, replace(kind, batch=kind.batch or batch_of([problem for problem, _ in found], gpu=gpu)), tuple(found))
        for kind, found in layers.items()
    ]
