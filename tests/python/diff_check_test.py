"""bench/diff_check.py on a command whose verdict is known: a row is slower if its median is 2 % longer."""

import json
import stat
import types

import diff_check
import pytest

GABLE = """#!/usr/bin/env python3
import json, sys
old, new, out = sys.argv[2], sys.argv[3], sys.argv[5]
def rows(files):
    studies = [json.load(open(file))["measurements"] for file in files.split(",")]
    return [(row, sum(s[i]["T"]["seconds"] for s in studies) / len(studies)) for i, row in enumerate(studies[0])]
verdicts = ["slower" if after > 1.02 * before else "same" for (_, before), (_, after) in zip(rows(old), rows(new))]
json.dump({"rows": [row | {"verdict": v} for (row, _), v in zip(rows(new), verdicts)]}, open(out, "w"))
sys.exit(1 if "slower" in verdicts else 0)
"""


def measurement(name, device, seconds):
    return {"name": name, "device": device, "gflops": 10.0, "T": {"seconds": seconds, "q1": seconds, "q3": seconds, "runs": 5, "rounds": [[seconds] * 3]}}


@pytest.fixture
def gable(tmp_path):
    program = tmp_path / "gable"
    program.write_text(GABLE)
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return program


def studies(folder, factors):
    files = [folder / f"{number}.json" for number in range(len(factors))]
    for file, factor in zip(files, factors):
        rows = [measurement("a", "cpu?threads=1", 1.0 * factor), measurement("b", "onednn?threads=1", 2.0)]
        file.write_text(json.dumps({"machine": {}, "totals": [1], "measurements": rows}))
    return files


def options(**changes):
    return types.SimpleNamespace(**({"draws": 10, "catches": 3, "rows": None} | changes))


def test_equal_studies_give_no_alarm_and_every_injected_change_is_caught(gable, tmp_path):
    record = diff_check.check(gable, studies(tmp_path, [1.0] * 4), 2, options())
    assert (record["false_alarms"], record["rows_named"]) == (0, {})
    assert record["caught"] == {"a cpu?threads=1": 3, "b onednn?threads=1": 3}


def test_rows_that_differ_by_themselves_are_alarms_by_name(gable, tmp_path):
    record = diff_check.check(gable, studies(tmp_path, [1.0, 2.0]), 1, options(draws=40, rows="b"))
    assert 0 < record["false_alarms"] < 40
    assert record["rows_named"] == {"a cpu?threads=1": record["false_alarms"]}
    assert list(record["caught"]) == ["b onednn?threads=1"]


def test_an_injected_change_is_in_every_time_of_the_row_and_in_no_other(tmp_path):
    (file,) = studies(tmp_path, [1.0])
    (tmp_path / "copies").mkdir()
    changed = json.loads(diff_check.slowed(file, 0, tmp_path / "copies").read_text())
    first, second = changed["measurements"]
    assert (first["T"]["seconds"], first["T"]["q1"], first["T"]["rounds"]) == (1.03, 1.03, [[1.03] * 3])
    assert first["gflops"] == pytest.approx(10 / 1.03)
    assert second == json.loads(file.read_text())["measurements"][1]
    assert "totals" not in changed


def test_without_a_device_its_rows_are_left_out(tmp_path):
    (file,) = studies(tmp_path, [1.0])
    (tmp_path / "copies").mkdir()
    rest = json.loads(diff_check.without(file, "onednn", tmp_path / "copies").read_text())
    assert [row["name"] for row in rest["measurements"]] == ["a"]


def test_groups_are_disjoint(tmp_path):
    old, new = diff_check.groups([tmp_path / str(number) for number in range(6)], 3)
    assert len({*old, *new}) == 6


def test_a_gable_that_fails_ends_the_check_with_its_words(tmp_path):
    program = tmp_path / "gable"
    program.write_text("#!/bin/sh\necho no such study >&2\nexit 2\n")
    program.chmod(0o755)
    with pytest.raises(SystemExit, match="no such study"):
        diff_check.diff(program, [tmp_path / "a"], [tmp_path / "b"])


def test_the_record_is_json_with_a_row_a_line():
    record = {"machine": {"cpu": "x"}, "checks": [{"a": 1}, {"b": 2}], "q1_median_q3_runs": {"row 1": [1], "row 2": [2]}}
    text = diff_check.text_of(record)
    assert json.loads(text) == record
    assert sum('"row ' in line for line in text.splitlines()) == 2
