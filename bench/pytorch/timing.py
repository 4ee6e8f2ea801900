"""Samples of a contestant's time, by CUDA events: calls on a stream, and inside a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch

from pytorch.contestants import Contestant
from pytorch.layer import Call


@dataclass
class Timed:
    """Samples of one way to call a contestant. `sample` takes one, in seconds for each call."""

    contestant: Contestant
    name: str
    calls: int
    sample: Callable[[], float]
    seconds: list[float] = field(default_factory=list)


def event_seconds(before: Callable[[], object], measured: Callable[[], object]) -> float:
    """`before` keeps the GPU busy while the host enqueues the measured work."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    before()
    start.record()
    measured()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1e3


def repeat(call: Call, times: int) -> None:
    for _ in range(times):
        call()


def warmed_up(call: Call) -> float:
    """Runs until PyTorch and cuDNN have chosen their kernels. Returns the approximate time of a call."""
    repeat(call, 2)
    torch.cuda.synchronize()
    first = event_seconds(call, call)
    return event_seconds(call, lambda: repeat(call, 3)) / 3 if first < 0.1 else first


def captured(call: Call, calls: int) -> torch.cuda.CUDAGraph:
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        call()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        repeat(call, calls)
    return graph


def ways_of(contestant: Contestant, sample_seconds: float) -> Iterator[Timed]:
    """The contestant's calls on a stream and in a graph. A sample has as many calls as take `sample_seconds`."""
    call = contestant.call
    calls = max(1, min(200, round(sample_seconds / warmed_up(call))))
    yield Timed(contestant, contestant.device, calls, lambda: event_seconds(call, lambda: repeat(call, calls)) / calls)
    graph = captured(call, calls)
    yield Timed(
        contestant,
        contestant.device + " graph",
        calls,
        lambda: event_seconds(graph.replay, graph.replay) / calls,
    )
