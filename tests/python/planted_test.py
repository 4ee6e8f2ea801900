"""bench/planted.py without running programs: which finding counts, and of what."""

import sys

import planted
import pytest


def document(parts=(), findings=(), notes=()):
    program = {"seconds": 1.0, "findings": list(findings), "parts": list(parts), "notes": list(notes)}
    return {"machine": {}, "program": program, "measurements": [{"name": "k", "kernel": "k"}]}


def finding(name):
    return {"name": name, "evidence": "because"}


def test_the_first_finding_counts():
    findings = [finding("scattered"), finding("memory:dram")]
    assert planted.result_of("strided", document(findings=findings), gpu=False)["right"]
    assert not planted.result_of("triad", document(findings=findings), gpu=False)["right"]
    assert not planted.result_of("triad", document(), gpu=False)["right"]


def test_on_a_gpu_it_is_that_of_the_kernel_with_the_most_time():
    parts = [
        {"kind": "region", "name": "r", "findings": [finding("compute")]},
        {"kind": "kernel", "name": "k", "findings": [finding("atomics")]},
        {"kind": "kernel", "name": "other", "findings": [finding("compute")]},
    ]
    result = planted.result_of("atomics", document(parts), gpu=True)
    assert result["right"]
    assert result["measurement"] == [{"name": "k", "kernel": "k"}]
    assert planted.result_of("atomics", document(notes=["no kernel ran"]), gpu=True)["notes"] == ["no kernel ran"]


def test_one_that_is_not_named_fails(monkeypatch, capsys):
    found = {"triad": "memory:dram", "chain": "latency"}
    monkeypatch.setattr(planted, "measure", lambda _, program: document(findings=[finding(found[program[1]])]))
    monkeypatch.setattr(sys, "argv", ["planted.py", "build", "--name", "triad", "--name", "chain"])
    assert planted.main() == 0
    found["chain"] = "compute"
    assert planted.main() == 1
    assert "1 of 2 named" in capsys.readouterr().out


def test_a_program_that_is_not_there_is_refused_with_those_that_are(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["planted.py", "build", "--name", "atomics"])
    with pytest.raises(SystemExit):
        planted.main()
    assert "--name atomics: there are false_sharing," in capsys.readouterr().err
