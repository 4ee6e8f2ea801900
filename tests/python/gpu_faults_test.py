"""bench/gpu_faults.py without a GPU: what it takes for wrong, and the command that it runs."""

import json
import signal
import sys

import gpu_faults
import pytest


def gable_of(tmp_path, script):
    """A build whose command is a shell script."""
    program = tmp_path / "bin" / "gable"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n" + script)
    program.chmod(0o755)
    return gpu_faults.Gable(tmp_path, tmp_path)


def test_a_case_that_is_wrong_or_breaks_is_named_and_bad(capsys):
    def as_said(_):
        return "exit 4,\n  two lines"

    def wrong(_):
        gpu_faults.require(False, "exit code 0")

    def broken(_):
        return {}["measurements"]

    line, good = gpu_faults.verdict_of(as_said, None)
    assert good and line == "as_said (0 s): as documented: exit 4, two lines"
    line, good = gpu_faults.verdict_of(wrong, None)
    assert not good and "WRONG: Wrong: exit code 0" in line
    line, good = gpu_faults.verdict_of(broken, None)
    assert not good and "WRONG: KeyError" in line
    assert len(capsys.readouterr().out.splitlines()) == 3


def test_the_command_runs_with_the_failing_driver_only_where_it_is_asked_for(tmp_path):
    gable = gable_of(tmp_path, 'echo "$LD_PRELOAD|$GABLE_FAULT_CODE|$LD_LIBRARY_PATH|$*"; exit 3')
    assert "LD_PRELOAD" not in gable.environment({}, preload=False)
    environment = gable.environment({"GABLE_FAULT_CODE": "46"}, preload=True)
    assert environment["LD_PRELOAD"].endswith("tests/cuda/faults/libgable_failing_driver.so")
    assert environment["GABLE_FAULT_CODE"] == "46"
    result = gable.run(["bench", "--device", "cuda:0"], GABLE_FAULT_CODE="46")
    assert result.code == 3
    assert result.out.startswith(f"|46|{tmp_path}/lib:") and result.out.endswith("|bench --device cuda:0\n")
    assert gable.run(["info"], limit="-v 4000000").code == 3


def test_a_command_that_hangs_or_dies_by_a_signal_is_wrong(tmp_path, monkeypatch):
    gable = gable_of(tmp_path, '[ "$1" = hang ] && exec sleep 30; kill -SEGV $$')
    monkeypatch.setattr(gpu_faults, "ENDS_WITHIN", 0.3)
    with pytest.raises(gpu_faults.Wrong, match="had not ended"):
        gable.run(["hang"])
    with pytest.raises(gpu_faults.Wrong, match=f"signal {signal.SIGSEGV.value} ended it"):
        gable.run(["crash"])


def test_a_record_that_is_not_there_or_half_written_has_no_rows_yet(tmp_path):
    file = tmp_path / "study.json"
    assert not gpu_faults.has_rows(file, "cuda:0")
    file.write_text('{"measurements": [{"dev')
    assert not gpu_faults.has_rows(file, "cuda:0")
    file.write_text(json.dumps({"measurements": [{"device": "cpu?threads=1"}]}))
    assert not gpu_faults.has_rows(file, "cuda:0")
    file.write_text(json.dumps({"measurements": [{"device": "cuda:0"}]}))
    assert gpu_faults.has_rows(file, "cuda:0")


def test_a_lost_gpu_must_keep_the_rows_before_and_refuse_the_rest_in_the_documented_words(tmp_path):
    reason = "cudaErrorIllegalAddress: the GPU is lost. Start the process again"
    refused = 120

    def gable():
        rows = [{"device": "cpu"}] * 150 + [{"device": "cuda:0"}] * 30
        study = {"measurements": rows, "refused": [{"reason": reason}] * refused}
        (tmp_path / "study").write_text(json.dumps(study))
        return made

    made = gable_of(tmp_path, 'cp study lost.json; while [ ! -e "$GABLE_FAULT_WHEN" ]; do sleep 0.01; done; exit 4')
    assert "30 of cuda:0 kept, 120 refused" in gpu_faults.illegal_address(gable())
    refused = 119
    with pytest.raises(gpu_faults.Wrong, match="30 rows and 119 refusals"):
        gpu_faults.illegal_address(gable())
    refused, reason = 120, "cudaErrorIllegalAddress"
    with pytest.raises(gpu_faults.Wrong, match="a refusal says"):
        gpu_faults.illegal_address(gable())


def test_without_a_gpu_it_exits_with_4(tmp_path, monkeypatch, capsys):
    gable_of(tmp_path, "echo '  cuda     not available: no driver'")
    monkeypatch.setattr(sys, "argv", ["gpu_faults.py", str(tmp_path)])
    assert gpu_faults.main() == 4
    assert "no GPU" in capsys.readouterr().out
