#!/usr/bin/env python3
"""How often `gable diff` is wrong on repeated studies of one build, and whether it catches a row that is 3 % slower.

    for i in $(seq 20); do gable bench --file LIST --device cpu,onednn --threads 1 --rounds 16 --json runs/$i.json; done
    bench/diff_check.py build/release/bin/gable runs/*.json --studies 1,5 --json check.json

Draws two disjoint groups of studies at random, again and again: any row that is named is a false alarm. For the catch,
the times of one row are multiplied by 1.03 in the new group's records. `--without DEVICE` does all again without
this device's rows. The JSON keeps each row's times in each study.
"""
from __future__ import annotations

import argparse
import json
import pathlib
import random
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

FACTOR = 1.03
Record = dict[str, Any]


def diff(gable: pathlib.Path, old: Sequence[pathlib.Path], new: Sequence[pathlib.Path]) -> list[Record]:
    """The rows of the comparison."""
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        done = subprocess.run([gable, "diff", ",".join(map(str, old)), ",".join(map(str, new)), "--json", out.name],
                              capture_output=True, text=True)
        if done.returncode > 1:
            sys.exit(done.stderr)
        return list(json.loads(pathlib.Path(out.name).read_text())["rows"])


def slowed(record: pathlib.Path, row: int, folder: pathlib.Path) -> pathlib.Path:
    """A copy in which a row takes FACTOR times as long."""
    document = json.loads(record.read_text())
    measurement = document["measurements"][row]
    for key in ("seconds", "q1", "q3", "fastest"):
        if key in measurement["T"]:
            measurement["T"][key] *= FACTOR
    for one in measurement["T"].get("rounds") or []:
        one[:] = [FACTOR * seconds for seconds in one]
    measurement["gflops"] /= FACTOR
    document.pop("totals", None)
    copy = folder / record.name
    copy.write_text(json.dumps(document))
    return copy


def without(record: pathlib.Path, device: str, folder: pathlib.Path) -> pathlib.Path:
    """A copy that lacks a device's rows."""
    document = json.loads(record.read_text())
    document["measurements"] = [row for row in document["measurements"] if row["device"].split("?")[0] != device]
    document.pop("totals", None)
    copy = folder / record.name
    copy.write_text(json.dumps(document))
    return copy


def groups(files: Sequence[pathlib.Path], size: int) -> tuple[list[pathlib.Path], list[pathlib.Path]]:
    drawn = random.sample(list(files), 2 * size)
    return drawn[:size], drawn[size:]


def name_of(row: Record) -> str:
    return f"{row['name']} {row['device']}"


def check(gable: pathlib.Path, files: Sequence[pathlib.Path], size: int, arguments: argparse.Namespace) -> Record:
    draws, catches = arguments.draws, arguments.catches
    alarms, named = 0, {}
    for _ in range(draws):
        wrong = [row for row in diff(gable, *groups(files, size)) if row["verdict"] in ("slower", "faster")]
        alarms += bool(wrong)
        for row in wrong:
            named[name_of(row)] = named.get(name_of(row), 0) + 1
    caught = {}
    rows = json.loads(files[0].read_text())["measurements"]
    for index, row in enumerate(rows):
        if arguments.rows and row["name"] not in arguments.rows.split(","):
            continue
        found = 0
        for _ in range(catches):
            old, new = groups(files, size)
            with tempfile.TemporaryDirectory() as folder:
                changed = diff(gable, old, [slowed(one, index, pathlib.Path(folder)) for one in new])
            found += changed[index]["verdict"] == "slower"
        caught[name_of(row)] = found
    print(f"{size} a side: {alarms} of {draws} comparisons name a row; caught of {catches}: {caught}", flush=True)
    return {"studies_a_side": size, "comparisons": draws, "false_alarms": alarms, "rows_named": named,
            "injected": FACTOR, "tries_a_row": catches, "caught": caught}


def text_of(record: Record) -> str:
    """JSON with a row a line."""
    parts = []
    for key, value in record.items():
        if isinstance(value, dict) and key != "machine":
            rows = ",\n".join(f"  {json.dumps(name)}: {json.dumps(one)}" for name, one in value.items())
            parts.append(f"{json.dumps(key)}: {{\n{rows}\n }}")
        elif isinstance(value, list):
            parts.append(f"{json.dumps(key)}: [\n" + ",\n".join(f"  {json.dumps(one)}" for one in value) + "\n ]")
        else:
            parts.append(f"{json.dumps(key)}: {json.dumps(value)}")
    return "{" + ",\n ".join(parts) + "}\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gable", type=pathlib.Path)
    parser.add_argument("studies", type=pathlib.Path, nargs="+", metavar="study.json")
    parser.add_argument("--studies", dest="sizes", default="1,5", help="studies a side, several with commas")
    parser.add_argument("--draws", type=int, default=400, help="comparisons of identical builds")
    parser.add_argument("--catches", type=int, default=20, help="comparisons for each row with the injected change")
    parser.add_argument("--rows", help="inject only into rows of these names, with commas between (default: all)")
    parser.add_argument("--without", help="do all again without the rows of this device")
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    random.seed(1)
    first = json.loads(arguments.studies[0].read_text())
    sizes = [int(size) for size in arguments.sizes.split(",")]
    checks = [check(arguments.gable, arguments.studies, size, arguments) for size in sizes]
    if arguments.without:
        with tempfile.TemporaryDirectory() as folder:
            fewer = [without(one, arguments.without, pathlib.Path(folder)) for one in arguments.studies]
            checks += [check(arguments.gable, fewer, size, arguments) | {"without": arguments.without} for size in sizes]
    if not arguments.json:
        return
    first["machine"]["check"] = " ".join(sys.argv)
    times: dict[str, list[list[float]]] = {}
    rounds: dict[str, list[list[float]]] = {}
    for file in arguments.studies:
        for row in json.loads(file.read_text())["measurements"]:
            one = row["T"]
            times.setdefault(name_of(row), []).append([one["q1"], one["seconds"], one["q3"], one["runs"]])
            lower = [float(f"{q1:.5g}") for q1, _, _ in one.get("rounds") or []]
            rounds.setdefault(name_of(row), []).append(lower)
    record = {"machine": first["machine"], "studies": len(arguments.studies), "checks": checks,
              "q1_median_q3_runs": times}
    if any(any(of_row) for of_row in rounds.values()):
        record["q1_of_rounds"] = rounds
    arguments.json.write_text(text_of(record))


if __name__ == "__main__":
    main()
