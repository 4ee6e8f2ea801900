#!/usr/bin/env python3
"""Programs with one planted bottleneck each under `gable measure`: is it named?

    bench/planted.py build/release --json bench/results/planted.json

Runs on the machine alone: other programs take CPUs away, and two threads that share one do not disturb each other.
"""
from __future__ import annotations

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
from typing import Any

# The names that are right for each program (bench/program/findings.h). "latency" for `unaligned` would be a miss: it
# says that a PMU is needed.
RIGHT = {
    "false_sharing": {"sharing"},
    "strided": {"scattered"},
    "chase": {"scattered"},
    "denormals": {"denormals"},
    "page_faults": {"page faults"},
    "tiny_tasks": {"overhead"},
    "tiny_writes": {"overhead"},
    "branches": {"branches"},
    "triad": {"memory:dram"},
    "chain": {"latency"},
    "scalar": {"scalar"},
    "compute": {"compute"},
    "waiting": {"waiting"},
    "unaligned": {"unaligned"},
}


def measure(build: pathlib.Path, name: str, scale: int) -> dict[str, Any]:
    with tempfile.NamedTemporaryFile(suffix=".json") as record:
        subprocess.run([build / "bin" / "gable", "measure", "--ceilings", "--experiments", "--json", record.name, "--",
                        build / "tests" / "perfcounters" / "planted", name, str(scale)],
                       check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return json.loads(pathlib.Path(record.name).read_text())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path, help="folder of the build")
    parser.add_argument("--name", action="append", choices=RIGHT, help="only this program; may be repeated")
    parser.add_argument("--scale", type=int, default=1, help="factor of the programs' work")
    parser.add_argument("--json", type=pathlib.Path, help="write what was found")
    arguments = parser.parse_args()
    results: list[dict[str, Any]] = []
    named = 0
    machine: dict[str, Any] = {}
    for name in arguments.name or RIGHT:
        document = measure(arguments.build.resolve(), name, arguments.scale)
        machine = document["machine"]
        findings = document["program"].get("findings", [])
        first = findings[0]["name"] if findings else ""
        right = first in RIGHT[name]
        named += right
        results.append({"planted": name, "named": first, "right": right, "findings": findings,
                        "seconds": document["program"]["seconds"],
                        "cpu_seconds": document["program"].get("cpu_seconds")})
        print(f"{'+' if right else '-'} {name}: {first or 'nothing'}; {findings[0]['evidence'] if findings else ''}",
              flush=True)
    print(f"{named} of {len(results)} named")
    if arguments.json:
        machine["command"] = " ".join(sys.argv)
        arguments.json.write_text(json.dumps({"machine": machine, "named": named, "of": len(results),
                                              "programs": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
