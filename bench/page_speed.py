#!/usr/bin/env python3
"""How long the report's page takes to load and to filter, in headless Chromium.

    bench/page_speed.py build/release/bin/gable bench/results/epyc-zen5-2c/study-quick.json --points 1000

The record's rows are repeated under other names until there are as many points. Prints the least and the median seconds
of some tries: the least is the page's own time where other programs run.
"""
from __future__ import annotations

import argparse
import copy
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "python"))
import browser  # noqa: E402

FILTER = """(() => { const t = performance.now(), i = document.querySelector('input[type=search]');
    i.value = WORD; i.dispatchEvent(new Event('input')); document.body.offsetHeight;
    return (performance.now() - t) / 1000; })()"""


def repeated(study: pathlib.Path, points: int) -> dict:
    record = json.loads(study.read_text())
    rows = record["measurements"]
    record["measurements"] = []
    for number in range(points):
        row = copy.deepcopy(rows[number % len(rows)])
        row["name"] = f"layer{number}"
        record["measurements"].append(row)
    record.pop("totals", None)
    return record


def measure(page: browser.Browser, tries: int) -> dict[str, list[float]]:
    loads, filters = [], []
    for _ in range(tries):
        page.reload()
        page.settle()
        loads.append(page.run("performance.getEntriesByType('navigation')[0].loadEventStart") / 1000)
        for word in ("layer1", "", "layer22", "", "layer9", ""):
            filters.append(page.run(FILTER.replace("WORD", json.dumps(word))))
    return {"load": loads, "filter": filters}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gable", type=pathlib.Path)
    parser.add_argument("study", type=pathlib.Path)
    parser.add_argument("--points", type=int, default=1000)
    parser.add_argument("--tries", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        study = pathlib.Path(folder) / "study.json"
        study.write_text(json.dumps(repeated(arguments.study, arguments.points)))
        subprocess.run([arguments.gable, "plot", study, "--out", f"{folder}/report"], check=True, capture_output=True)
        page = browser.Browser()
        page.open(pathlib.Path(folder) / "report" / "index.html")
        times = measure(page, arguments.tries)
        page.close()
    for what, seconds in times.items():
        print(f"{what}: least {min(seconds):.3f} s, median {statistics.median(seconds):.3f} s, most {max(seconds):.3f} s")


if __name__ == "__main__":
    main()
