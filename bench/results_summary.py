#!/usr/bin/env python3
"""Prints the tables of README.md and bench/results/ that are computed from records; --write puts them into the documents.

    bench/results_summary.py [--write]

A machine is a folder of records and the patterns of their names. The first list that is there leads, networks-3 before
networks-2: nothing was fitted to it. A new record of such a name gets its rows without a change here.

Exit codes: 0 done, 2 bad usage, 4 a record or a document's marks are missing.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import re
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from results_layers import CLASSES, Kind, Sample, Shape, class_of, samples
from results_regret import regrets

RESULTS = Path(__file__).resolve().parent / "results"
EACH_FILE = ("networks-[0-9]*", "survey-*")  # a file is a list; of other patterns all files together are one


@dataclass(frozen=True)
class Asked:
    """The geometric mean, the share of layers that must reach `bar`, and the floor that no layer may be below."""

    geo: float
    share: float
    bar: float
    floor: float


@dataclass(frozen=True)
class Machine:
    name: str
    folder: str
    patterns: tuple[str, ...] = (*EACH_FILE, "held-out-*t")
    gpu: bool = False
    amx: bool = False

    def asked(self, kind: Kind) -> Asked:
        if kind.layout == "nchw":
            return Asked(1.0, 0, 1.0, 0.70)
        if self.gpu:
            return Asked({"f32": 1.3, "split6": 2.0}.get(kind.dtype, 1.2), 0.95, 0.95, 0.80)
        if kind.avx2:
            return Asked(1.0, 0, 1.0, 0.75)
        if kind.dtype == "f32":
            return Asked(1.05, 0.95, 0.93, 0.80)
        return Asked(1.10, 0.95, 0.90, 0.75) if self.amx else Asked(1.0, 0, 0.90, 0.75)

    def lists(self, results: Path = RESULTS) -> list[list[Sample]]:
        """The samples of each list, the leading one first."""
        return [found for found in map(self._list, self._files(results)) if found]

    def _files(self, results: Path) -> Iterator[list[Path]]:
        for pattern in self.patterns:
            paths = sorted((results / self.folder).glob(f"{pattern}.json"))
            if pattern in EACH_FILE:
                yield from ([path] for path in reversed(paths))
            else:
                yield paths

    def _list(self, paths: list[Path]) -> list[Sample]:
        found = [
            sample
            for path in paths
            for sample in samples(json.loads(path.read_text()), f"{self.folder}/{path.stem}", gpu=self.gpu)
        ]
        return sorted(found, key=lambda sample: sample.kind.order())


MACHINES = (
    Machine("Zen 5", "epyc-zen5-2c"),
    Machine("Zen 4", "epyc-zen4-2c"),
    Machine("Emerald Rapids", "emr-16c", amx=True),
    Machine("H200", "h200", (*EACH_FILE, "unseen-*", "layers-*", "nchw-f16", "suites-*"), gpu=True),
)


def geo(values: Iterable[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, values)))


def share_of(ratios: list[float], bar: float) -> int:
    """Percent that reach the bar, never rounded up: 99.7 % is not 100."""
    return 100 * sum(ratio >= bar for ratio in ratios) // len(ratios)


def missed(ratios: list[float], asked: Asked) -> str:
    share = sum(ratio >= asked.bar for ratio in ratios) / len(ratios)
    found = ["geo"] * (geo(ratios) < asked.geo) + ["share"] * (share < asked.share) + ["floor"] * (min(ratios) < asked.floor)
    return ", ".join(found)


def table(head: list[str], rows: Iterable[list[str]]) -> str:
    return "\n".join([f"| {' | '.join(head)} |", "|---" * len(head) + "|", *(f"| {' | '.join(cells)} |" for cells in rows)])


# ---------------------------------------------------------------- all lists of a machine, a row a kind


def rows_of(machine: Machine, found: list[Sample]) -> Iterator[list[str]]:
    for sample in found:
        ratios, asked, name = sample.ratios(), machine.asked(sample.kind), sample.record.partition("/")[2]
        below, slower = (sum(ratio < least for ratio in ratios) for least in (asked.floor, 1))
        cells = [str(len(ratios)), f"{geo(ratios):.2f}", f"{share_of(ratios, asked.bar)} % ≥ {asked.bar:.2f}"]
        cells += [f"{below} < {asked.floor:.2f}", str(slower), f"{min(ratios):.2f}", missed(ratios, asked)]
        yield [f"[{name}]({sample.record}.json)", sample.kind.label(), *cells]


def lists(machine: Machine, results: Path = RESULTS) -> str:
    head = ["list", "what", "layers", "geo", "at the bar", "below the floor", "below 1", "worst", "misses"]
    return table(head, (row for found in machine.lists(results) for row in rows_of(machine, found)))


def classes(machine: Machine, results: Path = RESULTS) -> str:
    """Of the leading list: number of layers, geo and worst of each class."""
    found = machine.lists(results)[0]
    cells: dict[tuple[str, Kind], list[float]] = defaultdict(list)
    for sample in found:
        for problem, ratio in sample.layers:
            cells[class_of(problem), sample.kind].append(ratio)

    def cell(ratios: list[float]) -> str:
        return f"{len(ratios)}: {geo(ratios):.2f}, {min(ratios):.2f}" if ratios else ""

    kinds = [sample.kind for sample in found]
    rows = ([name, *(cell(cells[name, kind]) for kind in kinds)] for name in CLASSES if any(cells[name, kind] for kind in kinds))
    return table(["class", *(kind.label() for kind in kinds)], rows)


# ---------------------------------------------------------------- the summary: a row a list, a column a kind


def of_kind(dtype: str, layout: str = "nhwc", batch: str = "", *, threads: bool = False) -> Callable[[Kind], bool]:
    def fits(kind: Kind) -> bool:
        same = (kind.dtype, kind.layout, kind.threads > 1) == (dtype, layout, threads)
        return same and not kind.avx2 and batch in ("", kind.batch)

    return fits


CPU_COLUMNS = {
    "f32": of_kind("f32"),
    "bf16": of_kind("bf16"),
    "NCHW f32": of_kind("f32", "nchw"),
    "NCHW bf16": of_kind("bf16", "nchw"),
    "f32, more threads": of_kind("f32", threads=True),
    "bf16, more threads": of_kind("bf16", threads=True),
}
GPU_COLUMNS = {
    "f16, batch 1": of_kind("f16", batch="1"),
    "f16, batch 32": of_kind("f16", batch="32"),
    "bf16, batch 32": of_kind("bf16", batch="32"),
    "tf32, batch 1": of_kind("tf32", batch="1"),
    "tf32, batch 32": of_kind("tf32", batch="32"),
    "NCHW f16, batch 32": of_kind("f16", "nchw", "32"),
}


def common(names: list[str]) -> str:
    """The words that the names of a list's records begin with: held-out of held-out-f32-1t and held-out-nchw-f32-1t."""
    columns = itertools.takewhile(lambda column: len(set(column)) == 1, zip(*(name.split("-") for name in names), strict=False))
    return "-".join(column[0] for column in columns)


def shown(found: list[Sample], columns: dict[str, Callable[[Kind], bool]]) -> list[Sample | None]:
    """The first sample of each column's kind."""
    return [next((sample for sample in found if fits(sample.kind)), None) for fits in columns.values()]


def sizes(found: list[Sample | None]) -> str:
    numbers = sorted({len(sample.layers) for sample in found if sample})
    return str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]}"


def full_cell(machine: Machine, sample: Sample | None) -> str:
    if sample is None:
        return ""
    ratios, asked = sample.ratios(), machine.asked(sample.kind)
    below = sum(ratio < asked.floor for ratio in ratios)
    return f"{geo(ratios):.2f} ({share_of(ratios, asked.bar)} %, {below}, {min(ratios):.2f})"


def short_cell(sample: Sample | None) -> str:
    return f"{geo(sample.ratios()):.2f} ({share_of(sample.ratios(), 0.95)} %)" if sample else ""


def summary(machines: Iterable[Machine], columns: dict[str, Callable[[Kind], bool]], results: Path = RESULTS) -> str:
    """A list without any of these kinds has no row."""
    rows = []
    for machine in machines:
        for found in machine.lists(results):
            cells = shown(found, columns)
            if any(cells):
                name = common([sample.record.partition("/")[2] for sample in found])
                rows.append([machine.name, name, sizes(cells), *(full_cell(machine, sample) for sample in cells)])
    return table(["machine", "list", "layers", *columns], rows)


def leaders(machines: Iterable[Machine], columns: dict[str, Callable[[Kind], bool]], results: Path = RESULTS) -> str:
    """Of each machine's leading list the geometric mean and the share of layers that reach 0.95."""
    found = [(machine, shown(machine.lists(results)[0], columns)) for machine in machines]
    rows = ([machine.name, sizes(cells), *(short_cell(sample) for sample in cells)] for machine, cells in found)
    return table(["machine", "layers", *columns], rows)


def products(results: Path = RESULTS) -> str:
    """Matrix products on the GPU, as 1x1 layers of k channels and n outputs on m pixels."""
    found = samples(json.loads((results / "h200/matmul.json").read_text()), "h200/matmul", gpu=True)
    kinds = sorted((sample.kind for sample in found), key=Kind.order)
    ratios = {(sample.kind, problem): ratio for sample in found for problem, ratio in sample.layers}
    shapes = {problem: Shape.of(problem) for _, problem in ratios}
    sizes_of = {problem: (shape.pixels, shape.channels, shape.outputs) for problem, shape in shapes.items()}
    order = sorted(sizes_of, key=lambda problem: (-math.prod(sizes_of[problem]), sizes_of[problem]))
    rows = ([" x ".join(map(str, sizes_of[problem])), *(f"{ratios[kind, problem]:.2f}" for kind in kinds)] for problem in order)
    return table(["m x k x n", *(kind.dtype for kind in kinds)], rows)


# ---------------------------------------------------------------- the documents

CPUS, GPUS = [one for one in MACHINES if not one.gpu], [one for one in MACHINES if one.gpu]


def tables_of_results(results: Path = RESULTS) -> dict[str, str]:
    found = {"summary of CPUs": summary(CPUS, CPU_COLUMNS, results), "summary of GPUs": summary(GPUS, GPU_COLUMNS, results)}
    for machine in MACHINES:
        found[f"lists of {machine.name}"] = lists(machine, results)
        found[f"classes of {machine.name}"] = classes(machine, results)
    return found | {"matrix products": products(results)}


def tables_of_readme(results: Path = RESULTS) -> dict[str, str]:
    return {"leaders on CPUs": leaders(CPUS, CPU_COLUMNS, results), "leaders on GPUs": leaders(GPUS, GPU_COLUMNS, results)}


def tables_of_choosing(results: Path = RESULTS) -> dict[str, str]:
    return {f"regrets of {machine.name}": table(*regrets(results / machine.folder)) for machine in MACHINES}


DOCUMENTS = {
    RESULTS.parents[1] / "README.md": tables_of_readme,
    RESULTS / "README.md": tables_of_results,
    RESULTS / "choosing.md": tables_of_choosing,
}


def with_table(text: str, name: str, content: str) -> str:
    """The text with the table between its marks. ValueError without them."""
    begin, end = f"<!-- {name}: bench/results_summary.py --write -->", f"<!-- end of {name} -->"
    pattern = f"{re.escape(begin)}.*?{re.escape(end)}"
    changed, count = re.subn(pattern, lambda _: f"{begin}\n{content}\n{end}", text, flags=re.DOTALL)
    if count != 1:
        raise ValueError(f"{begin} ... {end} is there {count} times; it must be there once")
    return changed


def written(text: str, tables: dict[str, str]) -> str:
    for name, content in tables.items():
        text = with_table(text, name, content)
    return text


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="put the tables into the documents")
    options = parser.parse_args()
    try:
        for path, tables in DOCUMENTS.items():
            if options.write:
                path.write_text(written(path.read_text(), tables()))
            else:
                print("\n\n".join(f"{name}\n{content}" for name, content in tables().items()))
    except (OSError, ValueError) as error:
        print(f"results_summary: {error}", file=sys.stderr)
        return 4
    return 0


if __name__ == "__main__":
    sys.exit(main())
