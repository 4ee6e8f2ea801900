"""Numbers in the documents are those of the records: the tables of results and README, the regrets of choosing."""

import json
import re

import pytest
import results_layers as layers
import results_regret as regret
import results_summary as summary

ROOT = summary.RESULTS.parents[1]


def row(name, device, seconds, dtype="f32", math="strict"):
    same = {"problem": "mb1ic64ih8oc64kh1", "layout": "nhwc", "threads": 1}
    return {"name": name, "device": device, "dtype": dtype, "math": math, "T": {"seconds": seconds}} | same


def ratios(record: dict, **kind) -> list[float]:
    """Of the only sample in a record, which must be of this kind."""
    (sample,) = layers.samples(record, "record")
    assert sample.kind == layers.Kind(**kind)
    return sample.ratios()


def test_a_ratio_is_the_fastest_peer_s_time_over_gable_s_of_layers_that_both_ran():
    rows = [row("a", "cpu?threads=1", 2), row("a", "onednn?threads=1", 3), row("b", "cpu?threads=1", 1)]
    assert ratios({"measurements": rows}, dtype="f32", threads=1) == [1.5]
    rows.append(row("a", "cudnn:0", 1))
    assert ratios({"measurements": rows}, dtype="f32", threads=1) == [0.5]


def test_types_maths_and_instruction_sets_are_kinds_of_their_own():
    rows = [row("a", device, 1, *kind) for device in ("cpu", "onednn") for kind in (("bf16",), ("f32", "split6"))]
    rows += [row("b", "cpu:avx2?threads=1", 1), row("b", "onednn?threads=1", 1)]
    kinds = {sample.kind for sample in layers.samples({"measurements": rows}, "record")}
    assert {kind.label() for kind in kinds} == {"bf16", "split6", "f32, AVX2"}


def test_with_graphs_only_times_inside_of_them_count():
    rows = [row("a", "cuda:0", 1), row("a", "cuda:0 graph", 4), row("a", "pytorch:eager", 1), row("a", "pytorch:eager graph", 8)]
    assert ratios({"measurements": rows}, dtype="f32") == [2]


def test_of_several_runs_the_median_ratio_counts_and_of_two_trees_the_newer_one():
    problem = "net:1 mb1ic64ih8oc64oh8kh1"

    def lists(*one: dict) -> dict:
        return {"lists": [{"dtype": "f32", "layout": "nhwc", "threads": 1, "layers": {problem: layer}} for layer in one]}

    assert ratios(lists({"cpu_us": [1, 1, 1], "onednn_us": [3, 1, 2]}), dtype="f32", threads=1) == [2]
    record = lists({"new": {"cpu_us": [2, 1], "onednn_us": [4, 3]}})
    record["lists"][0] |= {"of_fastest": {}, "device": "cpu:avx2", "list": "even lines"}
    assert ratios(record, dtype="f32", threads=1, avx2=True) == [3]
    cores = [{"old": {"cpu": [1], "onednn": [9]}, "new": {"cpu": [1], "onednn": [time]}} for time in (1, 2, 4)]
    assert ratios(lists(*cores), dtype="f32", threads=1) == [2]


def test_lists_of_a_gpu_are_named_by_layout_type_and_batch():
    rows = {"a mb32ic64ih8oc64kh1": {"ratio": 2}, "b mb32ic64ih8oc64kh1": {"before_ratio": 3}}
    record = {"lists": [{"list": "nchw-f16-b32", "rows": rows}]}
    assert ratios(record, dtype="f16", layout="nchw", batch="32") == [2]


def test_a_survey_has_a_time_a_layer_or_a_ratio():
    layer = {"problem": "mb1ic64ih8oc64kh1", "dtype": "bf16", "layout": "nchw"}
    assert ratios({"layers": [layer | {"us": 2, "onednn_us": 3}]}, dtype="bf16", layout="nchw", threads=1) == [1.5]
    assert ratios({"layers": [layer | {"us": 2, "ratio": 3}]}, dtype="all types") == [3]


@pytest.mark.parametrize(
    "problem, expected",
    [
        ("mb1ic64ih16oc64kh1", "1x1 large"),
        ("mb1ic64ih56oc64oh14kh1sh4", "1x1 small"),
        ("mb1ic64ih56oc48kh1", "1x1 few"),
        ("mb1ic512ih1oc64kh1", "vectors"),
        ("mb1ic3ih224oc64oh112kh7sh2ph3", "few input channels"),
        ("mb1ic64ih56oc64kh3ph1", "3x3"),
        ("mb1ic64ih17oc64kh1kw7ph0pw3", "other windows"),
        ("g8mb1ic64ih56oc64kh3ph1", "groups"),
        ("g64mb1ic64ih56oc128kh5ph2", "depthwise 5x5"),
        ("g64mb1ic64ih56oc64kh11kw1ph5pw0", "depthwise, row or column"),
        ("g64mb1ic64ih56oc64kh7ph3", "depthwise, other"),
    ],
)
def test_a_problem_has_one_class(problem, expected):
    assert layers.class_of(problem) == expected


def test_a_share_is_not_rounded_up_and_what_a_list_misses_is_named():
    found = [1.2] * 996 + [0.9, 0.9, 0.9, 0.7]
    assert summary.share_of(found, 0.95) == 99
    assert summary.missed(found, summary.Asked(1.1, 0.95, 0.95, 0.8)) == "floor"
    assert summary.missed(found, summary.Asked(1.3, 1.0, 0.95, 0.7)) == "geo, share"


def test_the_newest_networks_lead(tmp_path):
    (tmp_path / "here").mkdir()
    problem, times = "net:1 mb1ic64ih8oc64oh8kh1", {"cpu_us": [1], "onednn_us": [2]}
    record = {"lists": [{"dtype": "f32", "layout": "nhwc", "threads": 1, "layers": {problem: times}}]}
    for name in ("networks-2", "networks-3", "held-out-f32-1t"):
        (tmp_path / "here" / f"{name}.json").write_text(json.dumps(record))
    machine = summary.Machine("Here", "here")
    assert [found[0].record for found in machine.lists(tmp_path)] == [
        "here/networks-3",
        "here/networks-2",
        "here/held-out-f32-1t",
    ]
    assert "| Here | networks-3 | 1 | 2.00 (100 %, 0, 2.00) |" in summary.summary([machine], summary.CPU_COLUMNS, tmp_path)


def test_a_table_stands_between_its_marks():
    begin, end = "<!-- one: bench/results_summary.py --write -->", "<!-- end of one -->"
    text = f"before\n{begin}\nold\n{end}\nafter\n"
    assert summary.with_table(text, "one", "new") == f"before\n{begin}\nnew\n{end}\nafter\n"
    with pytest.raises(ValueError, match="0 times"):
        summary.with_table("before\n", "one", "new")


@pytest.mark.parametrize("document", summary.DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_tables_of_a_document_are_those_of_the_records(document):
    text = document.read_text()
    assert text == summary.written(text, summary.DOCUMENTS[document]()), "run bench/results_summary.py --write"


def test_regrets_of_one_list_are_a_row_with_a_column_a_type(tmp_path):
    def record(name: str, *summary: dict) -> None:
        content = {"device": "auto?only=cpu+onednn&threads=2", "summary": list(summary)}
        (tmp_path / f"regret-auto{name}.json").write_text(json.dumps(content))

    one = {"dtype": "f32", "layout": "nhwc", "layers": 9, "geo": 1.0123, "worst": 1.31}
    record("", one, one | {"dtype": "bf16", "layers": 8})
    record("-random-4-nchw-bf16-2t", one | {"dtype": "bf16", "layout": "nchw", "surely_above_1.05": 3, "surely_worst": 1.2})
    record("-tuned-tf32", one | {"surely_above_1.05": 0, "surely_worst": 1.02})
    head, rows = regret.regrets(tmp_path)
    assert head == ["list", "layout", "threads", "layers", "f32", "tf32", "bf16"]
    assert rows == [
        ["`networks`", "nhwc", "2", "8 to 9", "1.012, 1.31", "", "1.012, 1.31"],
        ["`random-4`", "nchw", "2", "9", "", "", "1.012, 1.31 (3; 1.20)"],
        ["`tuned`", "nhwc", "2", "9", "", "1.012, 1.31 (0)", ""],
    ]


UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1}


def table_of_readme() -> list[list[str]]:
    """The cells of the table of README's first machine, from the dtype on, behind each row's name."""
    text = re.search(r"```\nname +dtype .*?\n(.*?)\.\.\.\n```", (ROOT / "README.md").read_text(), re.DOTALL).group(1)
    return [re.match(r"(\S+(?: \(mb\d+\))?) +(.*)", line).groups() for line in text.splitlines()]


def test_readme_s_table_is_that_of_its_record():
    rows = json.loads((summary.RESULTS / "epyc-zen4-2c" / "study-quick.json").read_text())["measurements"]
    table = table_of_readme()
    assert len(table) > 7
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
