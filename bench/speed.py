#!/usr/bin/env python3
"""Times two builds of gable in turn and says where the new one is slower than the noise of the base.

    bench/speed.py OLD_BUILD NEW_BUILD [options]        (./run speed BASE builds both and calls this)

Each build folder holds bin/gable. `gable bench --json` of the base (A) and of the new build (B) run in the order
A B A B ... A, pinned to the same CPUs. Round i compares B_i with the mean of A_i and A_i+1, so that a slow drift of the
clock cancels; A_i+1 against A_i, two runs of the same program, shows the noise. A layer's time is the lower quartile of
the samples of one run: other programs only add time.

  change of a layer   median over the rounds of B against A
  noise of a layer    the largest change of A against A in any round, at least the median change of A against A of the
                      suite's worst layer, at least --floor
  change of a suite   median over the rounds of the geometric mean over the layers; its noise likewise

A layer or a suite is slower where its change is above its noise, in a first pass and again in a second pass with only
those layers. A layer that the base computes and the new build does not is a failure too.

Exit codes: 0 no slower, 1 slower somewhere, 2 bad usage, 4 a build could not be run.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

EXIT_OK, EXIT_SLOWER, EXIT_USAGE, EXIT_SYSTEM = 0, 1, 2, 4
SUITE_FLOOR_PART = 0.5  # the mean of many layers is steadier than one layer: its floor is this part of --floor


class Layer(NamedTuple):
    """The fields that identify a measured row in both builds."""

    name: str
    problem: str
    dtype: str
    math: str
    cache: str
    device: str

    def __str__(self) -> str:
        parts = [self.name, self.dtype]
        parts += [self.math] if self.math != "strict" else []
        parts += [self.cache] if self.cache != "warm" else []
        return " ".join([*parts, self.device])


Run = dict[Layer, float]  # seconds of each layer in one run of `gable bench`
Bench = Callable[[Path, str, Sequence[str]], Run]  # (build, suite, names) -> Run


class SpeedError(Exception):
    """A build that can't be measured, with the reason."""


# ---- Statistics ----


@dataclass
class Change:
    """Log ratios of times: positive is slower."""

    rounds: list[float]  # the new build against the base
    noise_rounds: list[float]  # the base against itself
    noise: float = 0.0  # what a change must exceed

    @property
    def median(self) -> float:
        return statistics.median(self.rounds)

    @property
    def slower(self) -> bool:
        return self.median > self.noise

    @property
    def speed(self) -> float:
        """How many times as fast as the base the new build is."""
        return math.exp(-self.median)


@dataclass
class SuiteResult:
    """One suite of one pass."""

    suite: str
    layers: dict[Layer, Change]
    whole: Change
    base_seconds: dict[Layer, float] = field(default_factory=dict)
    lost: list[Layer] = field(default_factory=list)  # measured by the base, not by the new build

    @property
    def slower_layers(self) -> list[Layer]:
        return [layer for layer, change in self.layers.items() if change.slower]

    @property
    def below(self) -> float:
        """Share of layers that are slower than the base by any amount."""
        return sum(change.median > 0 for change in self.layers.values()) / len(self.layers)

    @property
    def worst(self) -> Layer:
        return max(self.layers, key=lambda layer: self.layers[layer].median)


def round_changes(base: Sequence[float], new: Sequence[float]) -> Change:
    """Seconds of n + 1 runs of the base with n runs of the new build between them."""
    if len(base) != len(new) + 1 or not new:
        raise ValueError(f"{len(base)} runs of the base and {len(new)} of the new build; need n + 1 and n >= 1")
    logs = [math.log(seconds) for seconds in base]
    pairs = list(zip(logs, logs[1:]))
    return Change(
        rounds=[math.log(seconds) - (before + after) / 2 for seconds, (before, after) in zip(new, pairs)],
        noise_rounds=[after - before for before, after in pairs],
    )


def largest(values: Sequence[float]) -> float:
    return max((abs(value) for value in values), default=0.0)


def compare(suite: str, base_runs: Sequence[Run], new_runs: Sequence[Run], floor: float) -> SuiteResult:
    """The changes of one suite. `floor` is the least noise of a layer, as a share of its time."""
    in_base = set.intersection(*(set(run) for run in base_runs))
    in_new = set.intersection(*(set(run) for run in new_runs))
    common = [layer for layer in base_runs[0] if layer in in_base and layer in in_new]
    if not common:
        raise SpeedError(f"suite {suite}: the two builds have no layer in common")
    layers = {
        layer: round_changes([run[layer] for run in base_runs], [run[layer] for run in new_runs]) for layer in common
    }
    least = math.log1p(floor)
    shared = largest([statistics.median(change.noise_rounds) for change in layers.values()])
    for change in layers.values():
        change.noise = max(largest(change.noise_rounds), shared, least)
    whole = Change(
        rounds=[statistics.fmean(values) for values in zip(*(change.rounds for change in layers.values()))],
        noise_rounds=[statistics.fmean(values) for values in zip(*(change.noise_rounds for change in layers.values()))],
    )
    whole.noise = max(largest(whole.noise_rounds), least * SUITE_FLOOR_PART)
    return SuiteResult(
        suite=suite,
        layers=layers,
        whole=whole,
        base_seconds={layer: statistics.median(run[layer] for run in base_runs) for layer in common},
        lost=[layer for layer in base_runs[0] if layer in in_base and layer not in in_new],
    )


# ---- Measuring ----


def parse_record(record: dict[str, Any]) -> Run:
    """The layers of a record of `gable bench --json`. Members that other versions lack have their defaults."""
    run: Run = {}
    for row in record["measurements"]:
        layer = Layer(
            name=row["name"],
            problem=row.get("problem", ""),
            dtype=row["dtype"],
            math=row.get("math", "strict"),
            cache=row.get("cache", "warm"),
            device=row["device"].split("?")[0],
        )
        run[layer] = row["T"].get("q1", row["T"]["seconds"])
    return run


def bench_arguments(options: argparse.Namespace, suite: str, names: Sequence[str]) -> list[str]:
    arguments = ["bench", "--suite", suite, "--dtype", options.dtype, "--device", options.device]
    arguments += ["--max-batch", str(options.max_batch), "--seconds", str(options.seconds)]
    if options.threads:
        arguments += ["--threads", str(options.threads)]
    if names:
        arguments += ["--name", ",".join(names)]
    return arguments


def bench_with(options: argparse.Namespace) -> Bench:
    """Runs `gable bench` of a build folder on the chosen CPUs."""
    cpus = options.cpus or sorted(os.sched_getaffinity(0))[: options.threads or None]
    # With GABLE_BACKEND_PATH of the caller both builds would load the same plugins.
    environment = {name: value for name, value in os.environ.items() if name != "GABLE_BACKEND_PATH"}

    def bench(build: Path, suite: str, names: Sequence[str]) -> Run:
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "record.json"
            command = [str(build / "bin" / "gable"), *bench_arguments(options, suite, names), "--json", str(out)]
            done = subprocess.run(
                command,
                env=environment,
                capture_output=True,
                text=True,
                check=False,
                preexec_fn=lambda: os.sched_setaffinity(0, cpus),
            )
            if done.returncode != 0:
                raise SpeedError(f"{' '.join(command)}\n  exit code {done.returncode}: {done.stderr.strip()[-1000:]}")
            return parse_record(json.loads(out.read_text(encoding="utf-8")))

    return bench


def measure(options: argparse.Namespace, bench: Bench, suite: str, only: Sequence[Layer] = ()) -> SuiteResult:
    """A B A B ... A of one suite, or of some of its layers."""
    names = sorted({layer.name for layer in only}) or options.names  # --name selects names that contain a text

    def run(build: Path) -> Run:
        return {layer: seconds for layer, seconds in bench(build, suite, names).items() if not only or layer in only}

    base_runs, new_runs = [run(options.old)], []
    if not base_runs[0]:
        raise SpeedError(f"suite {suite}: the base measures no layer with these options")
    for i in range(options.rounds):
        say(f"{suite}: round {i + 1} of {options.rounds}" + (f", layers again: {', '.join(names)}" if only else ""))
        new_runs.append(run(options.new))
        base_runs.append(run(options.old))
    return compare(suite, base_runs, new_runs, options.floor)


def judge(options: argparse.Namespace, bench: Bench, suite: str) -> tuple[SuiteResult, list[str]]:
    """The first pass of a suite, and the layers that are slower in it and in a second pass."""
    first = measure(options, bench, suite)
    found = [f"{layer}: not computed by the new build" for layer in first.lost]
    if not first.whole.slower and not first.slower_layers:
        return first, found
    again = measure(options, bench, suite, () if first.whole.slower else first.slower_layers)
    if first.whole.slower and again.whole.slower:
        found.append(f"suite {suite}: {percent(again.whole)}")
    return first, found + [f"{layer}: {percent(again.layers[layer])}" for layer in confirmed(first, again)]


def confirmed(first: SuiteResult, again: SuiteResult) -> list[Layer]:
    return [layer for layer in first.slower_layers if layer in again.layers and again.layers[layer].slower]


# ---- Reporting ----


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def percent(change: Change) -> str:
    return f"{math.expm1(change.median):+.1%} time, noise {math.expm1(change.noise):.1%}"


def table(results: Sequence[SuiteResult]) -> str:
    """A row for each suite, speeds as multiples of the base's."""
    heads = ["suite", "layers", "geo", "noise", "below", "worst layer", "its speed", "its noise"]
    rows = []
    for result in results:
        worst = result.layers[result.worst]
        rows.append(
            [
                result.suite,
                str(len(result.layers)),
                f"{result.whole.speed:.3f}x",
                f"{math.expm1(result.whole.noise):.1%}",
                f"{result.below:.0%}",
                str(result.worst),
                f"{worst.speed:.3f}x",
                f"{math.expm1(worst.noise):.1%}",
            ]
        )
    widths = [max(len(row[i]) for row in [heads, *rows]) for i in range(len(heads))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in [heads, *rows])


def layer_record(layer: Layer, result: SuiteResult) -> dict[str, Any]:
    change = result.layers[layer]
    return layer._asdict() | {
        "base_seconds": result.base_seconds[layer],
        "speed": change.speed,
        "noise": math.expm1(change.noise),
        "slower": change.slower,
        "rounds": [math.exp(-value) for value in change.rounds],
        "base_rounds": [math.exp(-value) for value in change.noise_rounds],
    }


def suite_record(result: SuiteResult) -> dict[str, Any]:
    return {
        "suite": result.suite,
        "speed": result.whole.speed,
        "noise": math.expm1(result.whole.noise),
        "slower": result.whole.slower,
        "below": result.below,
        "worst": str(result.worst),
        "lost": [str(layer) for layer in result.lost],
        "layers": [layer_record(layer, result) for layer in result.layers],
    }


def cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.machine()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def make_record(options: argparse.Namespace, results: Sequence[SuiteResult], found: Sequence[str]) -> dict[str, Any]:
    return {
        "schema_version": 1,
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "machine": cpu_model(),
        "base": options.base_name or str(options.old),
        "new": options.new_name or str(options.new),
        "options": {key: getattr(options, key) for key in ("dtype", "device", "threads", "max_batch", "seconds", "rounds")},
        "suites": [suite_record(result) for result in results],
        "slower": list(found),
    }


# ---- Command ----


def positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a positive number")
    return value


def comma_list(text: str) -> list[str]:
    return [part for part in text.split(",") if part]


def parse_options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="speed", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("old", type=Path, help="build folder of the base")
    parser.add_argument("new", type=Path, help="build folder to judge")
    parser.add_argument("--suite", type=comma_list, default=["study", "resnet50"], help="default: study,resnet50")
    parser.add_argument("--name", dest="names", type=comma_list, default=[], help="only these layers of the suites")
    parser.add_argument("--dtype", default="f32", help="several with commas; default: f32")
    parser.add_argument("--device", default="cpu", help="several with commas; default: cpu")
    parser.add_argument("--threads", type=positive, help="threads of CPU devices, pinned; default: all")
    parser.add_argument("--cpus", type=lambda text: {int(cpu) for cpu in text.split(",")}, help="CPUs to pin to")
    parser.add_argument("--rounds", type=positive, default=5, help="default: 5")
    parser.add_argument("--max-batch", type=positive, default=4, help="default: 4")
    parser.add_argument("--seconds", type=float, default=0.1, help="for one layer in one run; default: 0.1")
    parser.add_argument("--floor", type=float, default=0.01, help="least noise of a layer; default: 0.01")
    parser.add_argument("--json", type=Path, help="write the record to this file")
    parser.add_argument("--base-name", help=argparse.SUPPRESS)
    parser.add_argument("--new-name", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    for build in (options.old, options.new):
        if not (build / "bin" / "gable").is_file():
            parser.error(f"{build} is no build folder of gable: it has no bin/gable")
    return options


def main(arguments: Sequence[str]) -> int:
    options = parse_options(arguments)
    bench = bench_with(options)
    results: list[SuiteResult] = []
    found: list[str] = []
    try:
        for suite in options.suite:
            result, slower = judge(options, bench, suite)
            results.append(result)
            found += slower
    except SpeedError as error:
        say(f"speed: {error}")
        return EXIT_SYSTEM
    print(table(results))
    print("\nSlower than the noise:" if found else "\nNo layer and no suite is slower than its noise.")
    for line in found:
        print(f"  {line}")
    if options.json:
        options.json.write_text(json.dumps(make_record(options, results, found), indent=1) + "\n", encoding="utf-8")
        say(f"Record: {options.json}")
    return EXIT_SLOWER if found else EXIT_OK


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
