"""bench/speed.py: the statistics on numbers that are known, and the whole script on builds whose times are written down."""

import json
import math
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
import speed

SCRIPT = Path(speed.__file__)


def layer(name, **others):
    fields = {"problem": "mb1", "dtype": "f32", "math": "strict", "cache": "warm", "device": "cpu"} | others
    return speed.Layer(name=name, **fields)


def runs(rounds, base, new, noise=0.0, seed=1):
    """n + 1 runs of the base and n of the new build, whose layers take these seconds with noise of one part."""
    chance = random.Random(seed)

    def run(seconds):
        return {layer(name): value * math.exp(chance.gauss(0, noise)) for name, value in seconds.items()}

    return [run(base) for _ in range(rounds + 1)], [run(new) for _ in range(rounds)]


# ---- statistics


def test_a_round_is_compared_with_the_mean_of_its_neighbours_so_that_drift_cancels():
    drifting = [1.0 * 1.1**i for i in range(0, 9, 2)]  # the machine slows down by 10 % a run
    between = [1.0 * 1.1**i for i in range(1, 9, 2)]
    change = speed.round_changes(drifting, between)
    assert change.median == pytest.approx(0)
    assert change.noise_rounds == pytest.approx([2 * math.log(1.1)] * 4)


def test_a_change_is_a_log_ratio_and_a_speed_its_inverse():
    change = speed.round_changes([1, 1, 1, 1], [2, 2, 8])
    assert change.median == pytest.approx(math.log(2))
    assert change.speed == pytest.approx(0.5)


@pytest.mark.parametrize("base, new", [([1.0], []), ([1.0, 1.0], []), ([1.0, 1.0], [1.0, 1.0])])
def test_counts_of_runs_that_do_not_alternate_are_refused(base, new):
    with pytest.raises(ValueError):
        speed.round_changes(base, new)


def test_the_same_times_are_not_slower_and_the_floor_is_the_least_noise():
    result = speed.compare("study", *runs(5, {"a": 1, "b": 2}, {"a": 1, "b": 2}), floor=0.01)
    assert not result.whole.slower and result.slower_layers == []
    assert result.layers[layer("a")].noise == pytest.approx(math.log(1.01))
    assert result.whole.noise == pytest.approx(math.log(1.01) / 2)
    assert result.below == 0


def test_one_slow_layer_is_found_by_name_while_the_suite_keeps_its_pace():
    names = [f"layer{i}" for i in range(40)]
    base = dict.fromkeys(names, 1e-3)
    result = speed.compare("study", *runs(5, base, base | {"layer7": 1.1e-3}, noise=0.002), floor=0.01)
    assert result.slower_layers == [layer("layer7")]
    assert result.worst == layer("layer7")
    assert not result.whole.slower


def test_a_suite_that_is_slower_everywhere_by_less_than_a_layer_s_noise_is_slower():
    names = [f"layer{i}" for i in range(40)]
    base = dict.fromkeys(names, 1e-3)
    result = speed.compare("study", *runs(7, base, {name: 1.03e-3 for name in names}, noise=0.02), floor=0.01)
    assert result.whole.slower
    assert result.whole.speed == pytest.approx(1 / 1.03, abs=0.01)
    assert result.below > 0.5


def test_a_change_within_the_noise_of_the_base_is_not_slower():
    base, new = runs(5, {"a": 1e-3}, {"a": 1.05e-3})
    base[2] = {layer("a"): 1.2e-3}  # the base itself once took 20 % longer
    assert speed.compare("study", base, new, floor=0.01).slower_layers == []


def test_a_layer_is_held_against_the_worst_layer_of_the_base_against_itself():
    base, new = runs(3, {"steady": 1, "restless": 1}, {"steady": 1.05, "restless": 1})
    for i, run in enumerate(base):
        run[layer("restless")] = 1.1**i
    assert speed.compare("study", base, new, floor=0.01).slower_layers == []


def test_equal_builds_on_a_noisy_machine_are_seldom_slower_in_a_pass():
    base = {f"layer{i}": 1e-3 for i in range(30)}
    failing = 0
    for seed in range(60):
        result = speed.compare("study", *runs(5, base, base, noise=0.03, seed=seed), floor=0.01)
        failing += bool(result.slower_layers or result.whole.slower)
    assert failing <= 12  # the second pass squares this share


def test_a_layer_that_only_the_base_computes_is_lost_and_one_that_only_the_new_one_does_is_no_matter():
    base, new = runs(2, {"a": 1, "gone": 1}, {"a": 1, "fresh": 1})
    result = speed.compare("study", base, new, floor=0.01)
    assert result.lost == [layer("gone")]
    assert list(result.layers) == [layer("a")]
    with pytest.raises(speed.SpeedError):
        speed.compare("study", *runs(2, {"a": 1}, {"b": 1}), floor=0.01)


# ---- records


def test_records_of_other_versions_are_read_with_defaults_and_threads_do_not_part_layers():
    row = {"name": "a", "dtype": "f32", "device": "cpu?threads=2", "T": {"seconds": 3.0, "q1": 2.0}}
    assert speed.parse_record({"measurements": [row]}) == {layer("a", problem=""): 2.0}
    assert speed.parse_record({"measurements": [row | {"T": {"seconds": 3.0}}]}) == {layer("a", problem=""): 3.0}
    both = [row, row | {"dtype": "bf16"}, row | {"cache": "cold"}, row | {"math": "split3"}]
    assert len(speed.parse_record({"measurements": both})) == 4


def test_the_table_has_a_row_for_each_suite():
    results = [speed.compare(suite, *runs(2, {"a": 1}, {"a": 2}), floor=0.01) for suite in ("study", "resnet50")]
    lines = speed.table(results).splitlines()
    assert [line.split()[0] for line in lines] == ["suite", "study", "resnet50"]
    assert "0.500x" in lines[1] and "100%" in lines[1] and "a f32 cpu" in lines[1]


# ---- the script


def fake_build(folder, times, exit_code=0):
    """A build folder whose bin/gable notes how it was called and writes a record with these seconds."""
    (folder / "bin").mkdir(parents=True)
    gable = folder / "bin" / "gable"
    gable.write_text(f"""#!{sys.executable}
import json, os, sys
arguments = sys.argv[1:]
value = lambda name: arguments[arguments.index(name) + 1] if name in arguments else ""
with open({str(folder.parent / "calls")!r}, "a") as calls:
    cpus = ",".join(str(cpu) for cpu in sorted(os.sched_getaffinity(0)))
    calls.write({folder.name!r} + "|" + " ".join(arguments[:-1]) + "|" + cpus + "\\n")
names = [name for name in value("--name").split(",") if name]
times = {times!r}
rows = [{{"name": n, "dtype": "f32", "device": "cpu", "T": {{"seconds": s, "q1": s}}}}
        for n, s in times.items() if not names or any(part in n for part in names)]
json.dump({{"measurements": rows, "refused": []}}, open(value("--json"), "w"))
sys.exit({exit_code})
""")
    gable.chmod(0o755)
    return str(folder)


def run_script(*arguments):
    return subprocess.run([sys.executable, str(SCRIPT), *arguments], capture_output=True, text=True, check=False)


def test_equal_builds_exit_with_0_and_take_turns_on_the_same_cpus(tmp_path):
    old, new = fake_build(tmp_path / "old", {"a": 1, "b": 2}), fake_build(tmp_path / "new", {"a": 1, "b": 2})
    cpu = str(min(os.sched_getaffinity(0)))
    done = run_script(old, new, "--suite", "study", "--rounds", "2", "--threads", "1")
    assert done.returncode == speed.EXIT_OK, done.stderr
    calls = [line.split("|") for line in (tmp_path / "calls").read_text().splitlines()]
    assert [call[0] for call in calls] == ["old", "new", "old", "new", "old"]
    assert len({call[1] for call in calls}) == 1 and "--suite study" in calls[0][1] and "--threads 1" in calls[0][1]
    assert {call[2] for call in calls} == {cpu}


def test_a_slow_layer_exits_with_1_after_a_second_pass_and_stands_in_the_record(tmp_path):
    times = {f"layer{i}": 1.0 for i in range(9)}
    old, new = fake_build(tmp_path / "old", times), fake_build(tmp_path / "new", times | {"layer3": 1.02})
    record = tmp_path / "record.json"
    done = run_script(old, new, "--suite", "study", "--rounds", "2", "--json", str(record))
    assert done.returncode == speed.EXIT_SLOWER
    assert "layer3 f32 cpu: +2.0% time" in done.stdout
    calls = (tmp_path / "calls").read_text().splitlines()
    assert len(calls) == 10
    assert all("--name layer3" in call for call in calls[5:])
    written = json.loads(record.read_text())
    assert len(written["slower"]) == 1 and written["slower"][0].startswith("layer3")
    assert [entry["name"] for entry in written["suites"][0]["layers"] if entry["slower"]] == ["layer3"]
    assert written["options"]["rounds"] == 2


def test_a_slow_suite_and_a_lost_layer_exit_with_1(tmp_path):
    old = fake_build(tmp_path / "old", {"a": 1, "b": 1})
    slow, poor = fake_build(tmp_path / "slow", {"a": 1.5, "b": 1.5}), fake_build(tmp_path / "poor", {"a": 1})
    done = run_script(old, slow, "--suite", "study,resnet50", "--rounds", "1")
    assert done.returncode == speed.EXIT_SLOWER
    assert "suite study" in done.stdout and "suite resnet50" in done.stdout
    done = run_script(old, poor, "--suite", "study", "--rounds", "1")
    assert done.returncode == speed.EXIT_SLOWER
    assert "b f32 cpu: not computed by the new build" in done.stdout


def test_a_build_that_fails_exits_with_4_and_bad_usage_with_2(tmp_path):
    old, broken = fake_build(tmp_path / "old", {"a": 1}), fake_build(tmp_path / "broken", {"a": 1}, exit_code=3)
    assert run_script(old, broken, "--suite", "study").returncode == speed.EXIT_SYSTEM
    assert run_script(old, str(tmp_path)).returncode == speed.EXIT_USAGE
    assert run_script(old, old, "--rounds", "0").returncode == speed.EXIT_USAGE


# ---- ./run speed


def run_speed(*arguments):
    return subprocess.run(
        [str(SCRIPT.parents[1] / "run"), "speed", *arguments], capture_output=True, text=True, check=False
    )


def test_run_speed_takes_two_builds_and_hands_on_the_exit_code(tmp_path):
    old = fake_build(tmp_path / "old", {"a": 1})
    slow = fake_build(tmp_path / "slow", {"a": 2})
    assert run_speed("--builds", old, old, "--suite", "study", "--rounds", "1").returncode == speed.EXIT_OK
    assert run_speed("--builds", old, slow, "--suite", "study", "--rounds", "1").returncode == speed.EXIT_SLOWER


@pytest.mark.parametrize("arguments", [[], ["--builds", "one"], ["--rounds"], ["no-such-commit"]])
def test_run_speed_refuses_what_is_no_base(arguments):
    assert run_speed(*arguments).returncode == speed.EXIT_USAGE
