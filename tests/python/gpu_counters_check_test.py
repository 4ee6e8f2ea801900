"""bench/counting/gpu_counters_check.py: what it reads of ncu's output, and which differences it calls failures."""

import gpu_counters_check as check
import pytest

NCU = """==PROF== Connected to process 1
"ID","Kernel Name","a.sum","b.ratio"
"","","inst","%"
"0","first","1,000","10"
"1","second","24","30"
"""


def test_ncu_s_metrics_are_summed_over_kernels_and_ratios_only_of_a_single_one():
    values, kernels = check.parse_ncu(NCU, ["a.sum", "b.ratio", "absent.sum"])
    assert values == {"a.sum": 1024}
    assert kernels == ["first", "second"]
    single = "\n".join(NCU.splitlines()[:4])
    assert check.parse_ncu(single, ["a.sum", "b.ratio"]) == ({"a.sum": 1000, "b.ratio": 10}, ["first"])
    assert check.parse_ncu("no output", ["a.sum"]) == ({}, [])


def test_a_number_may_have_commas_and_what_is_none_is_none():
    assert check.number("1,234.5") == 1234.5
    assert check.number("n/a") is None
    assert check.number("") is None


@pytest.mark.parametrize("a, b, expected", [(2, 4, 0.5), (0, 0, 1.0), (1, 0, None)])
def test_a_ratio_to_zero_is_one_for_zero_and_unknown_otherwise(a, b, expected):
    assert check.ratio(a, b) == expected


def subject(**others):
    return {
        "name": "ffma",
        "kernel": "chain",
        "passes": 1,
        "executed": 1000,
        "of_executed": 1.0,
        "ratio": {"W": 1.0},
        "ncu": {},
        "metrics": {},
    } | others


def test_work_beyond_half_a_percent_of_what_is_executed_fails():
    assert check.failures(subject()) == []
    assert check.failures(subject(of_executed=1.004)) == []
    assert len(check.failures(subject(of_executed=1.006))) == 1
    assert check.failures(subject(of_executed=2, executed=0)) == []


def test_a_copy_s_traffic_beyond_two_percent_fails_and_no_other_s():
    assert check.failures(subject(name="copy 1 GB", ratio={"Q(dram)": 1.019})) == []
    assert len(check.failures(subject(name="copy 1 GB", ratio={"Q(dram)": 0.97}))) == 1
    assert len(check.failures(subject(name="copy 1 GB", ratio={}))) == 1
    assert check.failures(subject(ratio={"Q(dram)": 0.5})) == []


def test_work_beyond_one_percent_of_ncu_s_fails_and_traffic_is_only_recorded():
    work = "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum"
    measured = subject(metrics={work: 1020, "dram__bytes_read.sum": 900, "idle.sum": 0})
    check.compare(measured, {work: 1000, "dram__bytes_read.sum": 450, "idle.sum": 0, "unasked.sum": 1})
    assert set(measured["ncu"]) == {work, "dram__bytes_read.sum"}
    assert measured["ncu"][work]["ratio"] == 1.02
    assert len(check.failures(measured)) == 1
    measured["ncu"][work]["ratio"] = None  # ncu says zero
    assert len(check.failures(measured)) == 1
    assert "work/ncu" not in check.table_row(measured)


def test_a_subject_is_checked_without_ncu_too(monkeypatch, capsys):
    monkeypatch.setattr(check.shutil, "which", lambda name: None)
    whole = subject(counted={"W": {"value": 990}}, expected={"W": 1000, "Q(dram)": 5})
    check.check_subject(whole, "program", {})
    assert whole["ratio"] == {"W": 0.99}
    assert whole["of_executed"] == 0.99
    assert len(whole["failures"]) == 1
    assert "no ncu" in capsys.readouterr().out
    refused = {"name": "wgmma", "refused": "no such unit"}
    check.check_subject(refused, "program", {})
    assert refused["failures"] == []
