#!/usr/bin/env python3
"""Prints the summary at the head of bench/results/README.md, computed from the records; --write puts it there.

    bench/results_summary.py [--write]

A row is a record of layers that no suite names, with gable and a peer in turn in one process. A layer's ratio is the peer's
least median over gable's, both within one way to call: on a GPU inside a CUDA graph.

Exit codes: 0 done, 2 bad usage, 4 a record or the README's marks are missing.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

RESULTS = Path(__file__).resolve().parent / "results"
BEGIN, END = "<!-- summary: bench/results_summary.py --write -->", "<!-- end of the summary -->"
PEERS = ("onednn", "pytorch", "cudnn")


@dataclass(frozen=True)
class Line:
    """One row of the summary: the measurements of `kind` (dtype, math) in a record."""

    machine: str
    what: str
    record: str
    kind: tuple[str, str]


F32, BF16, F16, TF32, SPLIT6 = ("f32", "strict"), ("bf16", "strict"), ("f16", "strict"), ("f32", "tf32"), ("f32", "split6")


def of_cpu(machine: str, folder: str, names: dict[str, str]) -> Iterator[Line]:
    for what, name in names.items():
        yield Line(machine, what, f"{folder}/{name}", BF16 if what.startswith("bf16") else F32)


LINES = [
    *of_cpu(
        "Zen 5",
        "epyc-zen5-2c",
        {
            "f32": "held-out-f32-1t",
            "bf16": "held-out-bf16-1t",
            "f32, AVX2": "held-out-f32-avx2-1t",
            "f32, NCHW": "held-out-nchw-f32-1t",
            "bf16, NCHW": "held-out-nchw-bf16-1t",
            "f32, two threads": "held-out-f32-2t",
            "bf16, two threads": "held-out-bf16-2t",
            "f32, two threads, batch 8": "held-out-f32-mb8-2t",
            "bf16, two threads, batch 8": "held-out-bf16-mb8-2t",
        },
    ),
    *of_cpu(
        "Zen 4",
        "epyc-zen4-2c",
        {
            "f32": "held-out-2-f32-1t",
            "bf16": "held-out-2-bf16-1t",
            "f32, AVX2": "held-out-2-f32-avx2-1t",
            "f32, NCHW": "held-out-2-nchw-f32-1t",
            "bf16, NCHW": "held-out-2-nchw-bf16-1t",
            "f32, two threads, batch 8": "held-out-2-f32-2t",
            "bf16, two threads, batch 8": "held-out-2-bf16-2t",
        },
    ),
    *of_cpu(
        "Emerald Rapids, AMX",
        "emr-16c",
        {
            "f32": "held-out-f32-1t",
            "bf16": "held-out-bf16-1t",
            "f32, AVX2": "held-out-f32-avx2-1t",
            "f32, NCHW": "held-out-nchw-f32-1t",
            "bf16, NCHW": "held-out-nchw-bf16-1t",
            "f32, 12 threads, batch 8": "held-out-f32-12t",
            "bf16, 12 threads, batch 8": "held-out-bf16-12t",
        },
    ),
    Line("H200", "f16, batch 32", "h200/layers-f16-b32", F16),
    Line("H200", "bf16, batch 32", "h200/layers-bf16-tf32-b32", BF16),
    Line("H200", "tf32, batch 32", "h200/layers-bf16-tf32-b32", TF32),
    Line("H200", "f16, batch 1", "h200/layers-f16-b1", F16),
    Line("H200", "f16, batch 32, random layers", "h200/unseen-f16-b32", F16),
    Line("H200", "f16, batch 32, NCHW", "h200/nchw-f16", F16),
    Line("H200", "strict f32, batch 32, random layers", "h200/unseen-f32-b32", F32),
    Line("H200", "split6, batch 32, random layers", "h200/unseen-split6-b32", SPLIT6),
]


def ratios(record: dict, kind: tuple[str, str]) -> list[float]:
    """Of each layer that gable and a peer ran, the peer's time over gable's. With graphs, times outside of them do not count."""
    rows = [m for m in record["measurements"] if (m["dtype"], m.get("math", "strict")) == kind]
    if any(row["device"].endswith(" graph") for row in rows):
        rows = [row for row in rows if row["device"].endswith(" graph")]
    layers: dict[str, tuple[list[float], list[float]]] = {}
    for row in rows:
        is_peer = row["device"].startswith(PEERS)
        layers.setdefault(row["name"], ([], []))[is_peer].append(row["T"]["seconds"])
    return [min(peer) / min(ours) for ours, peer in layers.values() if ours and peer]


def geo(values: list[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


def summary(results: Path = RESULTS) -> str:
    rows = ["| machine | what | layers | geo | ahead on | at least 0.95 | worst | record |", "|---|---|---|---|---|---|---|---|"]
    for line in LINES:
        found = ratios(json.loads((results / f"{line.record}.json").read_text()), line.kind)
        ahead, close = (sum(ratio >= least for ratio in found) for least in (1, 0.95))
        rows.append(
            f"| {line.machine} | {line.what} | {len(found)} | {geo(found):.2f} | {ahead} | {100 * close / len(found):.0f} % "
            f"| {min(found):.2f} | [{line.record.partition('/')[2]}]({line.record}.json) |"
        )
    return "\n".join(rows)


def with_summary(text: str, table: str) -> str:
    """The README's text with `table` between the marks. ValueError without them."""
    changed, count = re.subn(f"{re.escape(BEGIN)}.*?{re.escape(END)}", lambda _: f"{BEGIN}\n{table}\n{END}", text, flags=re.DOTALL)
    if count != 1:
        raise ValueError(f"{BEGIN} ... {END} is there {count} times; it must be there once")
    return changed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="put the summary into bench/results/README.md")
    options = parser.parse_args()
    readme = RESULTS / "README.md"
    try:
        table = summary()
        if options.write:
            readme.write_text(with_summary(readme.read_text(), table))
        else:
            print(table)
    except (OSError, ValueError) as error:
        print(f"results_summary: {error}", file=sys.stderr)
        return 4
    return 0


if __name__ == "__main__":
    sys.exit(main())
