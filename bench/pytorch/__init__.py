"""Parts of bench/compare_pytorch.py."""
