"""Reads the records of `gable regret` (regret-auto-*.json) into a table, for results_summary.py."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

TYPES = ("f32", "tf32", "bf16", "f16")


@dataclass(frozen=True)
class Where:
    """What a row stands for. `threads` is 0 where no CPU took part."""

    name: str
    layout: str
    threads: int

    def order(self) -> tuple:
        return self.name != "networks", self.name, self.layout == "nchw", self.threads


def name_of(stem: str) -> tuple[str, str | None]:
    """A record's list and type by its file's name: regret-auto-random-4-bf16-2t is random-4 in bf16. Without a type: all of its rows."""
    words = stem.removeprefix("regret-auto").strip("-").split("-")
    rest = [word for word in words if word not in (*TYPES, "nchw", "nhwc") and not re.fullmatch(r"\d+t", word)]
    return "-".join(rest) or "networks", next((word for word in words if word in TYPES), None)


def cell(one: dict) -> str:
    """Geometric mean and worst; in brackets how many layers are above 1.05 beyond the noise and the worst of them, if it is known."""
    count = one.get("surely_above_1.05")
    noise = "" if count is None else f" ({count}; {one['surely_worst']:.2f})" if count else " (0)"
    return f"{one['geo']:.3f}, {one['worst']:.2f}{noise}"


def regrets(folder: Path) -> tuple[list[str], list[list[str]]]:
    """The head and the rows: one for the records of a list, layout and number of threads, a column for each type."""
    found: dict[Where, dict[str, dict]] = defaultdict(dict)
    for path in sorted(folder.glob("regret-auto*.json")):
        record = json.loads(path.read_text())
        threads = re.search(r"threads=(\d+)", record["device"])
        name, dtype = name_of(path.stem)
        for one in record["summary"]:
            found[Where(name, one["layout"], int(threads.group(1)) if threads else 0)][dtype or one["dtype"]] = one
    used = [dtype for dtype in TYPES if any(dtype in types for types in found.values())]
    rows = []
    for where, types in sorted(found.items(), key=lambda item: item[0].order()):
        layers = sorted({one["layers"] for one in types.values()})
        size = str(layers[0]) if len(layers) == 1 else f"{layers[0]} to {layers[-1]}"
        cells = [cell(types[dtype]) if dtype in types else "" for dtype in used]
        rows.append([f"`{where.name}`", where.layout, str(where.threads or ""), size, *cells])
    return ["list", "layout", "threads", "layers", *used], rows
