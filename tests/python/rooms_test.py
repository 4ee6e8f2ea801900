"""Rooms use what docs/layout.md says: no #include leads elsewhere."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = {".h", ".c", ".cpp", ".cu", ".cuh"}
# Quoted includes lead from the root; names without a folder are of the includer's own.
INCLUDE = re.compile(r'^\s*#include (?:"(?!gable/)([\w.]+)/[^"]*"|[<"](gable/[\w.]+)[>"])', re.MULTILINE)

USES = {
    "api": {"common"},  # its sources; the public headers are tested by themselves: each compiles alone
    "backends": {"cpu", "cuda", "common"},
    "cpu": {"common"},
    "cuda": {"common"},
    "perfcounters": {"common"},
    "common": set(),
    "bench": {"perfcounters", "common"},
    "fuzz": {"bench", "backends"},
    "examples": set(),  # applications: the public headers alone
}
PUBLIC = {  # headers of api; the rooms that are not here may use all
    "cpu": {"gable/problem.h", "gable/unweighted_problem.h"},
    "cuda": {"gable/problem.h", "gable/unweighted_problem.h"},
    "perfcounters": {"gable/region.h"},
    "common": {"gable/error.h", "gable/problem.h"},
}
BENCH = {
    "cli": {"console", "program", "counting", "measure", "workloads", "diff", "report", "record"},
    "console": {"record"},
    "program": {"console", "counting", "measure", "record"},
    "counting": {"measure", "workloads", "record"},
    "measure": {"workloads", "record"},
    "workloads": {"record"},
    "diff": {"report", "record"},
    "report": {"record"},
    "record": set(),
    "common": set(),
    "library": {"counting", "measure", "report", "record"},
}


KERNELS = ["cpu", "cuda"]  # rooms of a folder for each kernel, and `common` for all of them


def sources(folder):
    return [path for path in folder.rglob("*") if path.suffix in SOURCES]


def wrong_includes(room, text):
    """Includes that the room may not use."""
    wrong = []
    for folder, public in INCLUDE.findall(text):
        if folder and (ROOT / folder).is_dir() and folder not in USES[room] | {room}:
            wrong.append(folder)
        if public and room in PUBLIC and public not in PUBLIC[room]:
            wrong.append(public)
    return wrong


def wrong_bench_includes(folder, text):
    used = re.findall(r'#include "bench/(\w+)/', text)
    return [other for other in used if other not in BENCH[folder] | {folder, "common"}]


def wrong_common_includes(room, text):
    """Includes of a kernel's folder, which `common` of the room may not use."""
    return [folder for folder in re.findall(rf'#include "{room}/(\w+)/', text) if folder != "common"]


@pytest.mark.parametrize("room", USES)
def test_a_room_includes_what_layout_lets_it_use(room):
    files = sources(ROOT / room)
    assert files
    found = {str(path.relative_to(ROOT)): wrong_includes(room, path.read_text()) for path in files}
    assert {path: wrong for path, wrong in found.items() if wrong} == {}


@pytest.mark.parametrize("folder", BENCH)
def test_the_folders_of_bench_go_one_way(folder):
    found = {path.name: wrong_bench_includes(folder, path.read_text()) for path in sources(ROOT / "bench" / folder)}
    assert found and {path: wrong for path, wrong in found.items() if wrong} == {}


def test_every_folder_of_bench_with_sources_is_known():
    folders = {path.parent.name for path in (ROOT / "bench").glob("*/*") if path.suffix in {".h", ".cpp"}}
    assert folders == set(BENCH)


def test_the_steps_of_bench_have_no_circle():
    left = dict(BENCH)
    while left:
        ends = [folder for folder, uses in left.items() if not uses & set(left)]
        assert ends, f"a circle among {sorted(left)}"
        for folder in ends:
            del left[folder]


@pytest.mark.parametrize("room", KERNELS)
def test_common_of_kernels_includes_no_kernel(room):
    found = {path.name: wrong_common_includes(room, path.read_text()) for path in sources(ROOT / room / "common")}
    assert found and {path: wrong for path, wrong in found.items() if wrong} == {}


def test_wrong_includes_are_found():
    assert wrong_includes("cpu", '#include "backends/problems.h"\n#include <gable/plan.h>\n#include "gable/ops.h"\n#include "tile.h"\n') == ["backends", "gable/plan.h", "gable/ops.h"]
    assert wrong_includes("cpu", '#include "cpu/common/cache.h"\n#include <gable/problem.h>\n#include <vector>\n') == []
    assert wrong_bench_includes("record", '#include "bench/report/table.h"\n#include "bench/common/text.h"\n') == ["report"]
    assert wrong_common_includes("cpu", '#include "cpu/common/core.h"\n#include "cpu/bf16/amx.h"\n') == ["bf16"]
