#!/usr/bin/env python3
"""Programs with one planted bottleneck each under `gable measure`: is it named?

    bench/planted.py build/release --json bench/results/planted.json
    bench/planted.py build/release --gpu --json bench/results/planted-gpu.json

--gpu compiles planted_gpu.cu with nvcc, or takes the program that --gpu-program names, and looks at the kernel that takes the
most time. Runs on the machine alone: other programs take CPUs away, and two threads that share one do not disturb each other.

Exit codes: 0 all are named, 1 one is not, 2 bad usage.
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


def kernels_of(document: dict[str, Any]) -> list[dict[str, Any]]:
    """The parts that are GPU kernels, the one with the most time first."""
    return [part for part in document["program"]["parts"] if part["kind"] == "kernel"]


def findings_of(document: dict[str, Any], gpu: bool) -> list[dict[str, Any]]:
    """Of the program, or of the kernel with the most time."""
    if not gpu:
        return document["program"].get("findings", [])
    kernels = kernels_of(document)
    return kernels[0].get("findings", []) if kernels else []


def compiled_gpu_program(folder: str) -> str:
    program = str(pathlib.Path(folder) / "planted_gpu")
    source = pathlib.Path(__file__).resolve().parent / "planted_gpu.cu"
    subprocess.run(["nvcc", "-O3", "-arch=native", "-o", program, source], check=True)
    return program


def result_of(name: str, document: dict[str, Any], gpu: bool) -> dict[str, Any]:
    """What is kept of one program: the finding that stands first, whether it is right, and what it rests on."""
    findings = findings_of(document, gpu)
    first = findings[0]["name"] if findings else ""
    program = document["program"]
    result = {"planted": name, "named": first, "right": first in (RIGHT_GPU if gpu else RIGHT)[name], "findings": findings,
              "seconds": program["seconds"], "cpu_seconds": program.get("cpu_seconds")}
    kernels = kernels_of(document)
    if gpu and kernels:
        result["kernel"] = kernels[0]
        result["measurement"] = [m for m in document["measurements"] if m["name"] == kernels[0]["name"]]
    if gpu and not findings:
        result["notes"] = program["notes"]
    return result


def parsed_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path, help="folder of the build")
    parser.add_argument("--name", action="append", help="only this program; may be repeated")
    parser.add_argument("--scale", type=int, default=1, help="factor of the programs' work")
    parser.add_argument("--gpu", action="store_true", help="the kernels of planted_gpu.cu")
    parser.add_argument("--gpu-program", help="planted_gpu.cu, compiled")
    parser.add_argument("--json", type=pathlib.Path, help="write what was found")
    arguments = parser.parse_args()
    arguments.gpu = arguments.gpu or arguments.gpu_program is not None
    programs = RIGHT_GPU if arguments.gpu else RIGHT
    arguments.name = arguments.name or list(programs)
    for name in arguments.name:
        if name not in programs:
            parser.error(f"--name {name}: there are {', '.join(programs)}")
    return arguments


def main() -> int:
    arguments = parsed_arguments()
    build = arguments.build.resolve()
    results: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as scratch:
        command = [str(build / "tests" / "perfcounters" / "planted")]
        if arguments.gpu:
            command = [arguments.gpu_program or compiled_gpu_program(scratch)]
        for name in arguments.name:
            document = measure(build, [*command, name] if arguments.gpu else [*command, name, str(arguments.scale)])
            result = result_of(name, document, arguments.gpu)
            results.append(result)
            evidence = result["findings"][0]["evidence"] if result["findings"] else ""
            print(f"{'+' if result['right'] else '-'} {name}: {result['named'] or 'nothing'}; {evidence}", flush=True)
            if arguments.json:
                record = {"machine": document["machine"] | {"command": " ".join(sys.argv)},
                          "named": sum(one["right"] for one in results), "of": len(results), "programs": results}
                arguments.json.write_text(json.dumps(record, indent=1) + "\n")
    named = sum(one["right"] for one in results)
    print(f"{named} of {len(results)} named")
    return 0 if named == len(results) else 1


if __name__ == "__main__":
    sys.exit(main())
