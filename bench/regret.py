#!/usr/bin/env python3
"""Measures the regret of a device's choice of kernel: time of the pick / time of the best kernel that takes the layer.

    bench/regret.py BUILD --suite networks --dtype f32 --max-batch 1 [--device cpu] [--json out.json]
    bench/regret.py BUILD --file LIST --bias --activation relu --layout nhwc

BUILD holds bin/gable. Options that are not this script's go to `gable bench`, which times the pick and every kernel
(?kernel=K) in turn, layer by layer. The pick's time is the lesser of its own and of its kernel by name: these are the same
program, so that a right pick has a regret of 1 whatever the noise.

Exit codes: 0 the geometric mean and the worst layer are within --geo and --worst, 1 they are not, 2 bad usage, 4 gable
failed.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

EXIT_OK, EXIT_ABOVE, EXIT_USAGE, EXIT_SYSTEM = 0, 1, 2, 4

Record = dict[str, Any]


class RegretError(Exception):
    """Something that the user has to know, with an exit code."""

    def __init__(self, message: str, code: int = EXIT_SYSTEM) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class Regret:
    """One layer: the pick and every kernel that took it."""

    suite: str
    name: str
    problem: str
    dtype: str
    layout: str
    pick: str
    seconds: float  # of the pick
    kernels: dict[str, float]  # seconds by kernel, the pick's among them

    @property
    def best(self) -> str:
        return min(self.kernels, key=lambda kernel: self.kernels[kernel])

    @property
    def ratio(self) -> float:
        return self.seconds / self.kernels[self.best]


def with_kernel(device: str, kernel: str) -> str:
    return f"{device}{'&' if '?' in device else '?'}kernel={kernel}"


def kernel_of(uri: str) -> str | None:
    """The value of a URI's option `kernel`."""
    for option in uri.partition("?")[2].split("&"):
        key, _, value = option.partition("=")
        if key == "kernel":
            return value
    return None


def regrets_of(rows: Iterable[Record]) -> list[Regret]:
    """The rows of one record. Layers with a single kernel have nothing to choose and are left out."""
    layers: dict[tuple[str, ...], list[Record]] = {}
    for row in rows:
        key = tuple(str(row.get(field)) for field in ("suite", "name", "problem", "dtype", "math", "layout", "cache"))
        layers.setdefault(key, []).append(row)
    found = []
    for same in layers.values():
        picks = [row for row in same if kernel_of(row["device"]) is None]
        kernels = {kernel_of(row["device"]): row["T"]["seconds"] for row in same if kernel_of(row["device"])}
        if not picks or len(kernels) < 2:
            continue
        pick = picks[0]
        seconds = min(pick["T"]["seconds"], kernels.get(pick["kernel"], math.inf))
        kernels[pick["kernel"]] = seconds
        identity = {field: pick.get(field) or "" for field in ("suite", "name", "problem", "dtype", "layout")}
        found.append(Regret(**identity, pick=pick["kernel"], seconds=seconds, kernels=kernels))
    return found


def geo(ratios: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def summary(regrets: Sequence[Regret]) -> Record:
    ratios = [one.ratio for one in regrets]
    return {
        "layers": len(ratios),
        "geo": geo(ratios),
        "worst": max(ratios),
        "above_1.05": sum(ratio > 1.05 for ratio in ratios),
        "right": sum(one.pick == one.best for one in regrets),
    }


def table(regrets: Sequence[Regret], most: int) -> str:
    """The worst layers, and a line for all."""
    lines = [f"{'regret':>6}  {'dtype':<5} {'layout':<6} {'pick':<20} {'best':<20} layer"]
    worst = sorted(regrets, key=lambda one: -one.ratio)
    for one in worst[:most]:
        if one.ratio > 1:
            lines.append(
                f"{one.ratio:6.2f}  {one.dtype:<5} {one.layout:<6} {one.pick:<20} {one.best:<20} {one.name} {one.problem}"
            )
    whole = summary(regrets)
    lines.append(
        f"{whole['layers']} layers with a choice: geo {whole['geo']:.3f}, worst {whole['worst']:.2f}, "
        f"{whole['above_1.05']} above 1.05, {whole['right']} picks are the best kernel"
    )
    return "\n".join(lines)


def run_gable(build: Path, arguments: Sequence[str]) -> Record:
    """The JSON that a command of gable writes. Refused rows are usual: most kernels refuse most layers."""
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        command = [str(build / "bin" / "gable"), *arguments, "--json", out.name]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except OSError as error:
            raise RegretError(f"{command[0]}: {error}") from error
        text = Path(out.name).read_text(encoding="utf-8")
    if not text:
        raise RegretError(f"{' '.join(command)}: {done.stderr.strip()}", EXIT_USAGE if done.returncode == 2 else EXIT_SYSTEM)
    return json.loads(text)


def kernels_of(build: Path, device: str) -> list[str]:
    backend = device.partition("?")[0].partition(":")[0]
    for info in run_gable(build, ["info"])["devices"]:
        if info["backend"] == backend and info["kernels"]:
            return info["kernels"]
    raise RegretError(f"gable info names no kernels of '{device}'", EXIT_USAGE)


def measure(options: argparse.Namespace, selection: Sequence[str]) -> Record:
    uris = [options.device] + [with_kernel(options.device, name) for name in kernels_of(options.build, options.device)]
    return run_gable(options.build, ["bench", *selection, "--device", ",".join(uris)])


def parse(arguments: Sequence[str] | None) -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=Path, help="build folder with bin/gable")
    parser.add_argument("--device", default="cpu", help="one device (default: cpu)")
    parser.add_argument("--geo", type=float, default=1.03, help="exit 1 above this geometric mean (default: 1.03)")
    parser.add_argument("--worst", type=float, default=1.15, help="exit 1 if a layer is above this (default: 1.15)")
    parser.add_argument("--most", type=int, default=30, help="layers to print (default: 30)")
    parser.add_argument("--json", type=Path, help="write layers and summary to this file")
    return parser.parse_known_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    options, selection = parse(arguments)
    study = measure(options, selection)
    regrets = regrets_of(study["measurements"])
    if not regrets:
        raise RegretError("no layer has more than one kernel", EXIT_USAGE)
    print(table(regrets, options.most))
    whole = summary(regrets)
    if options.json:
        layers = [vars(one) | {"best": one.best, "regret": one.ratio} for one in regrets]
        record = {"schema_version": 1, "machine": study["machine"], "device": options.device, "summary": whole}
        options.json.write_text(json.dumps(record | {"layers": layers}, indent=1) + "\n", encoding="utf-8")
    return EXIT_OK if whole["geo"] <= options.geo and whole["worst"] <= options.worst else EXIT_ABOVE


if __name__ == "__main__":
    try:
        sys.exit(main())
    except RegretError as failure:
        print(f"regret.py: {failure}", file=sys.stderr)
        sys.exit(failure.code)
