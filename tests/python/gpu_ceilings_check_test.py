"""bench/gpu_ceilings_check.py on a GPU's record, and on the same with one number wrong."""

import json
import sys
from pathlib import Path

import gpu_ceilings_check as check
import pytest

RECORD = Path(check.__file__).parent / "results" / "h200" / "resnet50-b1-scaling.json"


def run(tmp_path, monkeypatch, record):
    file = tmp_path / "record.json"
    file.write_text(json.dumps(record))
    monkeypatch.setattr(sys, "argv", ["gpu_ceilings_check.py", str(file)])
    return check.main()


@pytest.fixture
def record():
    return json.loads(RECORD.read_text())


def test_the_ceilings_of_an_h200_are_plausible(tmp_path, monkeypatch, record):
    assert run(tmp_path, monkeypatch, record) == 0


@pytest.mark.parametrize(
    "name, factor, said",
    [
        ("wgmma f16", 0.3, "wgmma f16 is 0.26 of"),
        ("wgmma f16", 1.3, "wgmma f16 is 1.12 of"),
        ("l2 read", 0.5, "dram read is"),
        ("l2 read", 5, "l2 read is"),
        ("launch and wait", 0.1, "launch, back to back is"),
    ],
)
def test_a_wrong_number_is_named(tmp_path, monkeypatch, capsys, record, name, factor, said):
    for entry in record["ceilings"] + record["rates"]:
        if entry["name"] == name:
            entry["value"] *= factor
    assert run(tmp_path, monkeypatch, record) == 1
    assert said in capsys.readouterr().out


def test_a_missing_level_is_named(tmp_path, monkeypatch, capsys, record):
    record["ceilings"] = [entry for entry in record["ceilings"] if entry["name"] != "l2 read"]
    assert run(tmp_path, monkeypatch, record) == 1
    assert "has no l2 read" in capsys.readouterr().out


def test_a_record_without_a_gpu_s_ceilings_exits_with_4(tmp_path, monkeypatch):
    assert run(tmp_path, monkeypatch, {"ceilings": [{"name": "l1 read", "device_kind": "cpu", "device": "cpu", "value": 1}]}) == 4
    monkeypatch.setattr(sys, "argv", ["gpu_ceilings_check.py", str(tmp_path / "none.json")])
    assert check.main() == 4
