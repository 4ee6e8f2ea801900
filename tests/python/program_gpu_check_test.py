"""bench/program_gpu_check.py: what it reads of a session and of ncu, and how it puts launches of different work together."""

import os

import program_gpu_check as check
import pytest

FFMA, HARDWARE = check.SASS % "ffma", check.INSTRUCTIONS[0]


def kernel(arguments, calls=0, median=1e-3, **counts):
    one = {"name": "k", "grid": "8,1,1", "block": "64,1,1", "arguments": arguments, "metrics": {}}
    if calls:
        one.update(calls=calls, median=median, seconds=calls * median)
    if counts:
        one.update(counted=1, metrics={FFMA: counts["flop"] / 2, check.READ: counts["read"]})
    return one


def test_w_is_weighted_by_how_often_launches_ran_not_by_how_often_they_were_counted():
    timed = [kernel("1", calls=30), kernel("2", calls=10, median=5e-3)]
    row, = check.compare(timed, [kernel("1", flop=100, read=8), kernel("1", flop=100, read=8), kernel("2", flop=500, read=80)])
    assert row["flop"] == pytest.approx((30 * 100 + 10 * 500) / 40)
    assert row["read"] == pytest.approx((30 * 8 + 10 * 80) / 40)
    assert [one["flop"] for one in row["launches"]] == [500, 100]  # the longest total time first
    assert row["calls"] == 40
    assert row["unseen"] == 0


def test_each_kind_of_launch_is_held_against_the_nearest_one_of_ncu():
    timed = [kernel("1", calls=30), kernel("2", calls=10, median=5e-3)]
    rows = check.compare(timed, [kernel("1", flop=100, read=8), kernel("2", flop=500, read=80)])
    check.add_ncu(rows, {"k 8,1,1 64,1,1": {"flop": [100, 100, 100, 500], check.READ: [8, 8, 8, 80]}})
    assert rows[0]["flop_to_ncu"] == pytest.approx(1)
    assert [one["flop_to_ncu"] for one in rows[0]["launches"]] == [1, 1]
    check.add_ncu(rows, {"k 8,1,1 64,1,1": {"flop": [100, 501], check.READ: [8, 80]}})
    assert rows[0]["flop_to_ncu"] != pytest.approx(1)  # it saw other shares of them
    assert rows[0]["launches"][0]["flop_to_ncu"] == pytest.approx(500 / 501)


def test_launches_whose_arguments_were_not_counted_are_said(tmp_path):
    row, = check.compare([kernel("1", calls=30), kernel("7", calls=2)], [kernel("1", flop=100, read=8)])
    assert row["unseen"] == 2
    assert row["flop"] == 100


def test_a_session_s_whole_graphs_are_no_kernels(tmp_path):
    (tmp_path / "kernels.7.0.txt").write_text(
        "gable kernels 1 7\n"
        "kernel\t0\tGPU\tk\t\t8,1,1\t64,1,1\tcalls=2\tseconds=3\tmedian=1.5\targuments=18446744073709551615\n"
        "kernel\t0\tGPU\t\t\t0,0,0\t0,0,0\tcalls=2\tseconds=8\tmedian=4\tgraph=12\n"
        "note\tone\nend\tdone\n")
    kernels, graphs, notes = check.read_kernels(os.fspath(tmp_path))
    assert [k["arguments"] for k in kernels] == ["18446744073709551615"]
    assert graphs[0]["graph"] == "12"
    assert notes == ["note one"]
    slow, = check.graph_slowdowns(graphs, [dict(graphs[0], median=3.2)])
    assert slow["ratio"] == pytest.approx(1.25)
    inside, outside = dict(kernels[0], graph_calls=2.0), dict(kernels[0])
    check.divide_graph_times([inside, outside], [slow])
    assert (inside["median"], inside["seconds"]) == (pytest.approx(1.2), pytest.approx(2.4))
    assert outside["median"] == 1.5
