"""./run, and the scripts of bench/, as somebody starts them who has mistyped or lacks something."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def ended(*words: str, path: str | None = None) -> subprocess.CompletedProcess[str]:
    environment = None if path is None else {"PATH": "/usr/bin:/bin", "PYTHONPATH": path}
    return subprocess.run(words, capture_output=True, text=True, timeout=60, check=False, env=environment)


def test_an_argument_that_neither_run_nor_ctest_knows_is_refused_before_anything_is_built():
    result = ended(str(ROOT / "run"), "test", "--no-sanitizer")
    assert result.returncode == 2
    assert "--no-sanitizer'" in result.stderr
    assert "--no-sanitizers" in result.stderr


def test_compare_pytorch_has_its_help_and_a_reason_without_pytorch(tmp_path: Path):
    (tmp_path / "torch.py").write_text("raise ModuleNotFoundError(\"No module named 'torch'\")\n")
    script = str(ROOT / "bench" / "compare_pytorch.py")
    helped = ended(sys.executable, script, "--help", path=str(tmp_path))
    assert helped.returncode == 0
    assert "Exit codes" in helped.stdout
    refused = ended(sys.executable, script, path=str(tmp_path))
    assert refused.returncode == 4
    assert refused.stderr == "compare_pytorch.py needs PyTorch: No module named 'torch'\n"
