"""Numbers in the documents are those of the records: the results' summary, README's means, the regrets of choosing."""

import json
import re

import pytest
import results_summary as summary

ROOT = summary.RESULTS.parents[1]


def row(name, device, seconds, dtype="f32", math="strict"):
    return {"name": name, "device": device, "dtype": dtype, "math": math, "T": {"seconds": seconds}}


def test_a_ratio_is_the_fastest_peer_s_time_over_gable_s_of_layers_that_both_ran():
    rows = [row("a", "cpu?threads=1", 2), row("a", "onednn?threads=1", 3), row("b", "cpu?threads=1", 1)]
    rows += [row("a", "cpu?threads=1", 1, "bf16"), row("a", "onednn?threads=1", 9, "bf16")]
    assert summary.ratios({"measurements": rows}, summary.F32) == [1.5]
    rows.append(row("a", "cudnn:0", 1))
    assert summary.ratios({"measurements": rows}, summary.F32) == [0.5]


def test_with_graphs_only_times_inside_of_them_count():
    rows = [row("a", "cuda:0", 1), row("a", "cuda:0 graph", 4), row("a", "pytorch:eager", 1), row("a", "pytorch:eager graph", 8)]
    assert summary.ratios({"measurements": rows}, summary.F32) == [2]


def test_the_table_stands_between_the_marks():
    text = f"before\n{summary.BEGIN}\nold\n{summary.END}\nafter\n"
    assert summary.with_summary(text, "new") == f"before\n{summary.BEGIN}\nnew\n{summary.END}\nafter\n"
    with pytest.raises(ValueError, match="0 times"):
        summary.with_summary("before\n", "new")


def test_the_summary_of_the_results_is_that_of_their_records():
    text = (summary.RESULTS / "README.md").read_text()
    assert text == summary.with_summary(text, summary.summary()), "run bench/results_summary.py --write"


def means(machine: str, what: str) -> str:
    (line,) = (one for one in summary.LINES if (one.machine, one.what) == (machine, what))
    record = json.loads((summary.RESULTS / f"{line.record}.json").read_text())
    return f"{summary.geo(summary.ratios(record, line.kind)):.2f}"


def cells(machine: str) -> list[str]:
    (line,) = re.findall(rf"^\| [^|]*\| {machine}[^|]*\|(.*)\|$", (ROOT / "README.md").read_text(), re.MULTILINE)
    return [cell.strip() for cell in line.split("|")]


@pytest.mark.parametrize("machine, said", [("Zen 4", "Zen 4"), ("Zen 5", "Zen 5"), ("Emerald Rapids, AMX", "Emerald Rapids")])
def test_readme_s_means_on_cpus_are_those_of_the_records(machine, said):
    expected = [f"{means(machine, dtype)} (NCHW {means(machine, dtype + ', NCHW')})" for dtype in ("f32", "bf16")]
    assert cells(said)[:2] == expected


def test_readme_s_means_on_the_gpu_are_those_of_the_records():
    f16 = f"{means('H200', 'f16, batch 32')}; at batch 1 {means('H200', 'f16, batch 1')}"
    assert cells("H200") == ["", means("H200", "bf16, batch 32"), f16, means("H200", "tf32, batch 32")]


def regrets() -> set[tuple[str, ...]]:
    """Layers, geometric mean, worst and layers above 1.05 of every record, as documents print them."""
    found = set()
    for path in summary.RESULTS.glob("*/regret-auto*.json"):
        for one in json.loads(path.read_text())["summary"]:
            if isinstance(one, dict):
                found.add((str(one["layers"]), f"{one['geo']:.3f}", f"{one['worst']:.2f}", str(one["above_1.05"])))
    return found


def test_each_regret_in_the_tables_of_choosing_is_a_record_s():
    text = (summary.RESULTS / "choosing.md").read_text()
    rows = re.findall(r"^\|.*\| (\d+) \| (1\.\d{3}) \| (\d\.\d\d) \| (\d+) \|", text, re.MULTILINE)
    assert len(rows) > 20
    assert set(rows) <= regrets()


UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1}


def table_of_readme() -> list[list[str]]:
    """The cells of the table of README's first machine, from the dtype on, behind each row's name."""
    text = re.search(r"```\nname +dtype .*?\n(.*?)\.\.\.\n```", (ROOT / "README.md").read_text(), re.DOTALL).group(1)
    return [re.match(r"(\S+(?: \(mb\d+\))?) +(.*)", line).groups() for line in text.splitlines()]


def test_readme_s_table_is_that_of_its_record():
    rows = json.loads((summary.RESULTS / "epyc-zen4-2c" / "study-quick.json").read_text())["measurements"]
    table = table_of_readme()
    assert len(table) > 15
    for name, cells in table:
        dtype, cache, device, kernel, seconds, unit, gflops, intensity, percent, bound, *_ = cells.split()
        (row,) = (
            one
            for one in rows
            if (one["name"], one["dtype"], one["cache"], one["device"].split("?")[0]) == (name.split()[0], dtype, cache, device)
        )
        assert (row["kernel"], row["bound"]) == (kernel, bound)
        said = [float(seconds) * UNITS[unit], float(gflops), float(intensity), float(percent)]
        measured = [row["T"]["seconds"], row["gflops"], row["intensity"], row["percent_of_roof"]]
        assert said == pytest.approx(measured, rel=6e-3), name
