"""Python's structs (api/python/gable/_c.py) lie as those of gable/c.h do, as the C compiler lays them out."""

import ctypes
import os
import re
import shutil
import subprocess

import pytest

from conftest import ROOT
from gable import _c

STRUCTS = {
    re.search(r"struct (gable_\w+)", each.__doc__)[1]: each
    for each in vars(_c).values()
    if isinstance(each, type) and issubclass(each, ctypes.Structure)
}


def layout_of(struct):
    """The struct's size, then each field's name, offset and size."""
    fields = [(name, getattr(struct, name).offset, getattr(struct, name).size) for name, *_ in struct._fields_]
    return [str(ctypes.sizeof(struct))] + [f"{name} {offset} {size}" for name, offset, size in fields]


def test_structs_lie_as_in_c(tmp_path):
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    prints = []
    for name, struct in STRUCTS.items():
        prints.append(f'printf("{name} %zu\\n", sizeof({name}));')
        for field, *_ in struct._fields_:
            place = f"offsetof({name}, {field}), sizeof((({name}*)0)->{field})"
            prints.append(f'printf("{name} {field} %zu %zu\\n", {place});')
    source = tmp_path / "layout.c"
    lines = ["#include <gable/c.h>", "#include <stddef.h>", "#include <stdio.h>", "int main(void) {", *prints, "}"]
    source.write_text("\n".join(lines) + "\n", encoding="utf-8")
    program = tmp_path / "layout"
    subprocess.run([compiler, "-std=c99", f"-I{ROOT / 'api' / 'include'}", str(source), "-o", str(program)], check=True)
    in_c = subprocess.run([str(program)], check=True, capture_output=True, text=True).stdout.splitlines()
    assert in_c == [f"{name} {line}" for name, struct in STRUCTS.items() for line in layout_of(struct)]
    assert {"gable_conv2d", "gable_matmul", "gable_max_pool", "gable_add", "gable_device_info"} <= set(STRUCTS)
