#!/usr/bin/env python3
"""Programs with one planted bottleneck each under `gable measure`: is it named?

    bench/planted.py build/release --json bench/results/planted.json
    bench/planted.py build/release --gpu --json bench/results/planted-gpu.json

--gpu compiles planted_gpu.cu with nvcc, or takes the program that --gpu-program names, and looks at the kernel that takes the
most time. Runs on the machine alone: other programs take CPUs away, and two threads that share one do not disturb each other.
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

# The same for the kernels of planted_gpu.cu (bench/program/kernel_findings.h). A kernel without arithmetic is never
# near a roof of arithmetic; `chase` waits for memory, so that its evidence must say so.
RIGHT_GPU = {
    "uncoalesced": {"uncoalesced"},
    "bank_conflicts": {"bank conflicts"},
    "spills": {"local memory"},
    "few_blocks": {"few blocks"},
    "launches": {"overhead"},
    "divergence": {"divergence"},
    "atomics": {"atomics"},
    "triad": {"memory:dram"},
    "compute": {"compute"},
    "chase": {"latency"},
}


def measure(build: pathlib.Path, program: list[str]) -> dict[str, Any]:
    with tempfile.NamedTemporaryFile(suffix=".json") as record:
        subprocess.run([build / "bin" / "gable", "measure", "--ceilings", "--experiments", "--json", record.name, "--",
                        *program],
                       check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return json.loads(pathlib.Path(record.name).read_text())


def findings_of(document: dict[str, Any], gpu: bool) -> list[dict[str, Any]]:
    """Of the program, or of the kernel with the most time."""
    if not gpu:
        return document["program"].get("findings", [])
    kernels = [part for part in document["program"]["parts"] if part["kind"] == "kernel"]
    return kernels[0].get("findings", []) if kernels else []


def compiled_gpu_program(folder: str) -> str:
    program = str(pathlib.Path(folder) / "planted_gpu")
    source = pathlib.Path(__file__).resolve().parent / "planted_gpu.cu"
    subprocess.run(["nvcc", "-O3", "-arch=native", "-o", program, source], check=True)
    return program


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path, help="folder of the build")
    parser.add_argument("--name", action="append", choices=sorted({*RIGHT, *RIGHT_GPU}), help="only this program; may be repeated")
    parser.add_argument("--scale", type=int, default=1, help="factor of the programs' work")
    parser.add_argument("--gpu", action="store_true", help="the kernels of planted_gpu.cu")
    parser.add_argument("--gpu-program", help="planted_gpu.cu, compiled")
    parser.add_argument("--json", type=pathlib.Path, help="write what was found")
    arguments = parser.parse_args()
    results: list[dict[str, Any]] = []
    named = 0
    machine: dict[str, Any] = {}
    gpu = arguments.gpu or arguments.gpu_program is not None
    expected = RIGHT_GPU if gpu else RIGHT
    scratch = tempfile.TemporaryDirectory()
    build = arguments.build.resolve()
    program = str(build / "tests" / "perfcounters" / "planted")
    if gpu:
        program = arguments.gpu_program or compiled_gpu_program(scratch.name)
    for name in arguments.name or expected:
        document = measure(build, [program, name] if gpu else [program, name, str(arguments.scale)])
        machine = document["machine"]
        findings = findings_of(document, gpu)
        first = findings[0]["name"] if findings else ""
        right = first in expected[name]
        named += right
        kernels = [part for part in document["program"]["parts"] if part["kind"] == "kernel"]
        results.append({"planted": name, "named": first, "right": right, "findings": findings,
                        "seconds": document["program"]["seconds"],
                        "cpu_seconds": document["program"].get("cpu_seconds")})
        if gpu and kernels:
            results[-1]["kernel"] = kernels[0]
            results[-1]["measurement"] = [m for m in document["measurements"] if m["name"] == kernels[0]["name"]]
        if gpu and not findings:
            results[-1]["notes"] = document["program"]["notes"]
        print(f"{'+' if right else '-'} {name}: {first or 'nothing'}; {findings[0]['evidence'] if findings else ''}",
              flush=True)
        if arguments.json:
            machine["command"] = " ".join(sys.argv)
            arguments.json.write_text(json.dumps({"machine": machine, "named": named, "of": len(results),
                                                  "programs": results}, indent=1) + "\n")
    print(f"{named} of {len(results)} named")


if __name__ == "__main__":
    main()
