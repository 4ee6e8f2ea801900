"""bench/regret.py: regrets of times that are known, and the whole script on a gable whose times are written down."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import regret

SCRIPT = Path(regret.__file__)


def row(name, device, kernel, seconds, **others):
    fields = {"suite": "s", "problem": "mb1", "dtype": "f32", "math": "strict", "layout": "nhwc", "cache": "warm"}
    return fields | {"name": name, "device": device, "kernel": kernel, "T": {"seconds": seconds}} | others


def layer(name, pick, seconds, kernels):
    forced = [row(name, f"cpu?kernel={kernel}", kernel, time) for kernel, time in kernels.items()]
    return [row(name, "cpu", pick, seconds), *forced]


def test_the_regret_is_the_picks_time_over_the_best_kernels():
    (one,) = regret.regrets_of(layer("a", "slow", 3.0, {"slow": 3.0, "fast": 2.0}))
    assert (one.pick, one.best) == ("slow", "fast")
    assert one.ratio == pytest.approx(1.5)


def test_a_right_pick_has_no_regret_whatever_the_noise():
    for measured in (0.9, 1.0, 1.2):
        (one,) = regret.regrets_of(layer("a", "fast", measured, {"slow": 3.0, "fast": 1.0}))
        assert one.ratio == 1


def test_layers_without_a_choice_or_without_a_pick_are_left_out():
    assert regret.regrets_of(layer("a", "only", 1.0, {"only": 1.0})) == []
    assert regret.regrets_of([row("a", "cpu?kernel=x", "x", 1.0), row("a", "cpu?kernel=y", "y", 1.0)]) == []


def test_dtypes_and_layouts_of_one_name_are_layers_of_their_own():
    rows = layer("a", "x", 1.0, {"x": 1.0, "y": 2.0})
    rows += [one | {"dtype": "bf16"} for one in layer("a", "y", 2.0, {"x": 1.0, "y": 2.0})]
    assert sorted(one.ratio for one in regret.regrets_of(rows)) == [1, 2]


def test_the_summary_has_the_geometric_mean_and_the_worst():
    rows = layer("a", "x", 4.0, {"x": 4.0, "y": 1.0}) + layer("b", "x", 1.0, {"x": 1.0, "y": 3.0})
    whole = regret.summary(regret.regrets_of(rows))
    assert whole["geo"] == pytest.approx(2)
    assert whole == {"layers": 2, "geo": whole["geo"], "worst": 4, "above_1.05": 1, "right": 1}


def test_uris_keep_their_options():
    assert regret.with_kernel("cpu", "direct") == "cpu?kernel=direct"
    assert regret.with_kernel("cpu:avx2?threads=2", "direct") == "cpu:avx2?threads=2&kernel=direct"
    assert regret.kernel_of("cpu:avx2?threads=2&kernel=direct") == "direct"
    assert regret.kernel_of("cpu?threads=2") is None


@pytest.fixture
def build(tmp_path):
    """A build whose gable answers `info` and `bench` from files."""
    program = tmp_path / "bin" / "gable"
    program.parent.mkdir()
    program.write_text(
        "#!/bin/sh\n"
        f'echo "$@" >> {tmp_path}/calls\n'
        'for last; do :; done\n'
        f'[ -e {tmp_path}/$1.json ] || {{ echo "gable: bad" >&2; exit 2; }}\n'
        f'cp {tmp_path}/$1.json "$last"\n'
    )
    program.chmod(0o755)
    info = {"devices": [{"backend": "cpu", "kernels": ["x", "y"]}]}
    (tmp_path / "info.json").write_text(json.dumps(info))
    return tmp_path


def run(build, *arguments):
    command = [sys.executable, str(SCRIPT), str(build), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ)


@pytest.mark.parametrize(("slow", "code"), [(1.0, 0), (1.1, 1), (2.0, 1)])
def test_the_script_asks_for_every_kernel_and_judges_the_outcome(build, slow, code):
    rows = layer("a", "x", slow, {"x": slow, "y": 1.0})
    (build / "bench.json").write_text(json.dumps({"machine": {}, "measurements": rows}))
    out = build / "out.json"
    done = run(build, "--suite", "networks", "--dtype", "f32", "--json", str(out))
    assert done.returncode == code, done.stderr
    asked = (build / "calls").read_text().splitlines()[-1]
    assert asked.startswith("bench --suite networks --dtype f32 --device cpu,cpu?kernel=x,cpu?kernel=y ")
    record = json.loads(out.read_text())
    assert math.isclose(record["summary"]["worst"], slow)
    assert record["layers"][0]["kernels"] == {"x": slow, "y": 1.0}


def test_bad_usage_of_gable_is_told(build):
    done = run(build, "--suite", "nonsense")
    assert done.returncode == 2
    assert "gable: bad" in done.stderr
