"""Makes the scripts importable, and those that drive PyTorch importable without it."""

import contextlib
import sys
import types
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "bench" / "counting"), str(ROOT / "api" / "python")]

try:
    import torch  # noqa: F401
except ImportError:
    # What the script touches while it is imported; whatever computes is left to machines with PyTorch and a GPU.
    torch = types.ModuleType("torch")
    torch.float32, torch.float16, torch.bfloat16 = "float32", "float16", "bfloat16"
    torch.channels_last, torch.contiguous_format = "channels_last", "contiguous_format"
    torch.Tensor = object
    torch.no_grad = contextlib.nullcontext
    torch.__version__ = "absent"
    functional = types.ModuleType("torch.nn.functional")
    nn = types.ModuleType("torch.nn")
    nn.functional = functional
    torch.nn = nn
    sys.modules |= {"torch": torch, "torch.nn": nn, "torch.nn.functional": functional}
