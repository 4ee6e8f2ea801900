#!/usr/bin/env python3
"""Whether the ceilings of a GPU are plausible: near the vendor's formulas, each level of memory above the one behind it.

    gable ceilings --quick --json ceilings.json && bench/gpu_ceilings_check.py ceilings.json

RECORD is any record with the ceilings and rates of one or more GPUs. This is gable_instrument_check for a GPU: it shows
loops that a compiler broke and clocks that are wrong. Run it on a GPU that nobody else uses.

Exit codes: 0 all holds, 1 something does not, 2 bad usage, 4 the record can't be read or has no GPU's ceilings.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

LEAST, MOST = 0.4, 1.05  # of the vendor's formula
ORDER = (("dram read", "l2 read"), ("l2 read", "shared memory read"), ("launch, back to back", "launch and wait"))


def faults(device: str, entries: list[dict[str, Any]]) -> Iterator[str]:
    """What is implausible among a GPU's ceilings and rates."""
    values = {entry["name"]: entry["value"] for entry in entries}
    for entry in entries:
        share = entry["value"] / entry["theoretical"] if entry.get("theoretical") else 1
        if not LEAST < share < MOST:
            yield f"{device}: {entry['name']} is {share:.2f} of {entry['formula']}"
    for less, more in ORDER:
        missing = [name for name in (less, more) if name not in values]
        if missing:
            yield f"{device}: the record has no {', '.join(missing)}"
        elif not values[less] < values[more]:
            yield f"{device}: {less} is {values[less]:.4g}, {more} {values[more]:.4g}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("record", type=Path)
    try:
        record = json.loads(parser.parse_args().record.read_text())
    except (OSError, ValueError) as error:
        print(f"gpu_ceilings_check: {error}", file=sys.stderr)
        return 4
    entries = [one for one in (record.get("ceilings") or []) + (record.get("rates") or []) if one.get("device_kind") == "gpu"]
    devices = sorted({one["device"] for one in entries})
    if not devices:
        print("gpu_ceilings_check: the record has no ceilings of a GPU", file=sys.stderr)
        return 4
    found = [fault for device in devices for fault in faults(device, [one for one in entries if one["device"] == device])]
    for fault in found:
        print(fault)
    print(f"{', '.join(devices)}: {len(entries)} ceilings and rates, {len(found)} implausible")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
