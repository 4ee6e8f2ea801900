#!/usr/bin/env python3
"""Checks on an NVIDIA GPU what libgable_cupti.so says about programs that are not gable's.

    bench/program_gpu_check.py check --library BUILD/lib/counters/libgable_cupti.so --json OUT.json [--only NAME...]
    bench/program_gpu_check.py ncu --json NCU.json [--only NAME...]      (only what ncu says, for a machine with little time)
    bench/program_gpu_check.py join OUT.json NCU.json                    (puts it beside what check --no-ncu wrote)
    bench/program_gpu_check.py app NAME...                               (some of the programs)

Each program runs without gable, as under `gable measure`'s clock, and with all kernels recorded (several times in turn,
timed by its own CUDA events); with its kernels one after the other, and counted; then under ncu. For each kernel T stands beside the unprofiled run's, W, dram reads and writes stand beside ncu's, and writes beside the bytes that a streaming kernel is known
to write. Needs nvcc (or --cuda-program and --graph-program, built program_gpu_check.cu and program_graphs.cu), ncu, and for their programs PyTorch, CuPy, Triton.
"""
import argparse
import csv
import io
import json
import os
import platform
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
SASS = "smsp__sass_thread_inst_executed_op_%s_pred_on.sum"
WORK = {SASS % op: weight for op, weight in [
    ("ffma", 2), ("fadd", 1), ("fmul", 1), ("dfma", 2), ("dadd", 1), ("dmul", 1)]}
HALF = {SASS % op: weight for op, weight in [("hfma", 4), ("hadd", 2), ("hmul", 2)]}
TENSOR = {"sm__ops_path_tensor_%s.sum" % kind: 1 for kind in [
    "src_bf16_dst_fp32", "src_fp16", "src_tf32_dst_fp32", "src_fp64", "src_fp8"]}
READ, WRITE, L2 = "dram__bytes_read.sum", "dram__bytes_write.sum", "lts__t_sectors_srcunit_tex.sum"
L1 = ["l1tex__t_bytes.sum", "l1tex__m_xbar2l1tex_read_bytes_mem_global_op_tma_ld.sum",
      "l1tex__m_l1tex2xbar_write_bytes_mem_global_op_tma_st.sum",
      "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum", "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
      "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_gmma.sum"]
INSTRUCTIONS = ["smsp__inst_executed.sum", "smsp__sass_inst_executed.sum"]
METRICS = [READ, WRITE, L2, *L1, *TENSOR, *WORK, *HALF, *INSTRUCTIONS]
# What ncu counts, in runs of their own: traffic takes one pass, so that no kernel runs twice and its caches are the program's.
NCU_RUNS = [[READ, WRITE, INSTRUCTIONS[0]], [*TENSOR, *WORK, *HALF]]
# Of a network in f16: each unit of the matrix units takes passes of its own.
NCU_HALF_RUNS = [NCU_RUNS[0], [metric for metric in NCU_RUNS[1] if "tensor" not in metric or "fp16" in metric]]
# Bytes that a call of a streaming kernel writes: (part of its name, blocks) -> bytes.
KNOWN_WRITES = {("saxpy", 262144): 2**28, ("daxpy", 131072): 2**28, ("fill", 262144): 2**28, ("tagged<3>", 262144): 2**28, ("transpose", 65536): 2**28,
                ("vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add", 65536): 2**28,
                ("triton_add", 65536): 2**28, ("cupy_saxpy", 524288): 2**28}
# W of the kinds of launches of a kernel.
KNOWN_WORK = {("polynomial", 131072): [2 * degree * 2**25 for degree in (64, 256, 1024)]}
# What the programs time by events and is one call of one kernel: name -> (part of the kernel's name, blocks).
ONE_KERNEL = {"saxpy": ("saxpy(int", 262144), "daxpy": ("daxpy", 131072), "fill": ("fill(", 262144), "transpose": ("transpose", 65536),
              "reduction": ("reduction", 1056), "tagged": ("tagged<3>", 262144), "sgemm": ("sm80_xmma_gemm_f32", 512),
              "hgemm": ("sm90_xmma_gemm_f16", 132),
              "torch_add": ("vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add", 65536), "torch_mm_bf16": ("nvjet_sm90", 132),
              "torch_mm_f64": ("sm90_xmma_gemm_f64", 512), "cudnn_conv_f16": ("sm90_xmma_fprop", 120), "torch_softmax": ("cunn_SoftM", 4096),
              "triton_add": ("triton_add", 65536), "cupy_saxpy": ("cupy_saxpy", 524288)}


# The programs: each prints "name seconds" for what it times with CUDA events.

def torch_time(name, run, result=None, calls=20, warm=5):
    import torch
    for _ in range(warm):
        run()
    torch.cuda.synchronize()
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(calls):
        run()
    end.record()
    end.synchronize()
    print(name, begin.elapsed_time(end) / calls * 1e-3, flush=True)
    if result is not None:  # what it computed: nobody who listens may change it
        print(name + ".check", result().double().abs().mean().item(), flush=True)


def app_torch():
    """cuBLAS, cuDNN and elementwise kernels of PyTorch."""
    import torch
    torch.manual_seed(0)
    x, y = torch.randn(2**26, device="cuda"), torch.randn(2**26, device="cuda")
    torch_time("torch_add", lambda: torch.add(x, y, out=y), lambda: y)
    m = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
    torch_time("torch_mm_bf16", lambda: m @ m)
    n = torch.randn(2048, 2048, device="cuda", dtype=torch.float64)
    torch_time("torch_mm_f64", lambda: n @ n)
    image = torch.randn(64, 64, 112, 112, device="cuda", dtype=torch.half).to(memory_format=torch.channels_last)
    weight = torch.randn(128, 64, 3, 3, device="cuda", dtype=torch.half).to(memory_format=torch.channels_last)
    torch_time("cudnn_conv_f16", lambda: torch.nn.functional.conv2d(image, weight, padding=1))
    torch_time("torch_softmax", lambda: torch.softmax(m, 1))


def app_triton():
    import torch
    import triton
    import triton.language as tl

    @triton.jit
    def triton_add(x, y, out, n, block: tl.constexpr):
        at = tl.program_id(0) * block + tl.arange(0, block)
        tl.store(out + at, tl.load(x + at, at < n) + tl.load(y + at, at < n), at < n)

    torch.manual_seed(0)
    n = 2**26
    x, y, out = (torch.randn(n, device="cuda") for _ in range(3))
    torch_time("triton_add", lambda: triton_add[(n // 1024,)](x, y, out, n, block=1024), lambda: out)


def app_cupy():
    import cupy
    n = 2**26
    x, y = cupy.ones(n, dtype=cupy.float32), cupy.ones(n, dtype=cupy.float32)
    saxpy = cupy.ElementwiseKernel("float32 a, float32 x", "float32 y", "y = a * x + y", "cupy_saxpy")
    for _ in range(5):
        saxpy(2, x, y)
    begin, end = cupy.cuda.Event(), cupy.cuda.Event()
    begin.record()
    for _ in range(20):
        saxpy(2, x, y)
    end.record()
    end.synchronize()
    print("cupy_saxpy", cupy.cuda.get_elapsed_time(begin, end) / 20 * 1e-3)


def for_ncu(run):
    """ncu counts what runs here, if it was told to wait for cudaProfilerStart()."""
    import torch
    torch.cuda.synchronize()
    torch.cuda.profiler.start()
    run()
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()


def resnet50():
    import torch
    torch.manual_seed(0)
    try:
        import timm
        model = timm.create_model("resnet50")
    except ImportError:
        import torchvision
        model = torchvision.models.resnet50(weights=None)
    model = model.cuda().half().eval().to(memory_format=torch.channels_last)
    image = torch.randn(64, 3, 224, 224, device="cuda", dtype=torch.half).to(memory_format=torch.channels_last)
    return model, image


def app_resnet50():
    """The forward pass of ResNet-50: eager, then the same captured in a CUDA graph."""
    import torch
    model, image = resnet50()
    with torch.inference_mode():
        steps = torch.zeros(1024, device="cuda")
        torch_time("resnet50_eager", lambda: model(image), lambda: model(image), warm=3)
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            model(image), steps.add_(1)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out, steps = model(image), steps.add_(1)
        torch_time("resnet50_graph", graph.replay, lambda: out)
        for_ncu(lambda: model(image))
        print("resnet50_steps.check", steps[0].item())


def app_resnet50_compiled():
    import torch
    model, image = resnet50()
    compiled = torch.compile(model)
    with torch.inference_mode():
        torch_time("resnet50_compiled", lambda: compiled(image), lambda: compiled(image), warm=3)
        for_ncu(lambda: compiled(image))


def replay(graph):
    """Launches of a graph in an NVTX range: REPLAYS of them, 12 if nobody says."""
    import torch
    replays = int(os.environ.get("REPLAYS", 12))
    torch.cuda.synchronize()
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.nvtx.range_push(REPLAY)
    begin.record()
    for _ in range(replays):
        graph.replay()
    end.record()
    end.synchronize()
    torch.cuda.nvtx.range_pop()
    return begin.elapsed_time(end) / replays * 1e-3


def app_torch_graph():
    """Kernels of PyTorch and cuBLAS that run in a CUDA graph only."""
    import torch
    torch.manual_seed(0)
    with torch.inference_mode():
        x, w = torch.randn(3001, 8192, device="cuda"), torch.randn(8192, 2048, device="cuda", dtype=torch.half)
        torch.randn(64, 64, device="cuda").half() @ torch.randn(64, 64, device="cuda").half()  # cuBLAS allocates
        y, z = torch.zeros(3001, 8192, device="cuda"), torch.zeros(2048, 2048, device="cuda", dtype=torch.half)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y.add_(x).mul_(0.5)
            soft = torch.softmax(y, 1)
            z.copy_(x[:2048].half() @ w * 0.01)
            out = soft.sum(0)
        print("torch_graph", replay(graph))
        for name, value in (("out", out), ("y", y), ("z", z)):
            print(f"{name}.check", value.double().abs().sum().item())


def app_resnet50_replays():
    """ResNet-50 in a CUDA graph; passes for warming up are outside the range."""
    import torch
    model, image = resnet50()
    with torch.inference_mode():
        steps = torch.zeros(1024, device="cuda")
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(2):
                model(image), steps.add_(1)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out, steps = model(image), steps.add_(1)
        print("resnet50_replays", replay(graph))
        print("out.check", out.double().abs().sum().item())
        print("steps.check", steps[0].item())


REPLAY = "replay"  # name of the range that the following programs' kernels are compared in
IN_GRAPHS = ("all", "blas", "updated")  # of program_graphs.cu
IN_RANGE = ("torch_graph", "resnet50_replays")
PYTHON_APPS = {"torch_graph": app_torch_graph, "resnet50_replays": app_resnet50_replays, "torch": app_torch, "triton": app_triton, "cupy": app_cupy, "resnet50": app_resnet50,
               "resnet50_compiled": app_resnet50_compiled}


# What gable's library wrote, and what ncu prints.

def read_kernels(folder):
    """The kernels, whole CUDA graphs, and notes of a session."""
    kernels, graphs, notes = [], [], []
    for name in sorted(os.listdir(folder)):
        if not (name.startswith("kernels.") and name.endswith(".txt")):
            continue
        for line in open(os.path.join(folder, name), errors="replace"):
            fields = line.rstrip("\n").split("\t")
            if fields[0] in ("note", "failure"):
                notes.append(" ".join(fields))
            if fields[0] == "end" and fields[1] != "done":
                notes.append(name + " did not end by itself")
            if fields[0] != "kernel":
                continue
            kernel = {"name": fields[3], "region": fields[4], "grid": fields[5], "block": fields[6], "arguments": "0", "metrics": {}}
            for field in fields[7:]:
                key, _, value = field.partition("=")
                if key.startswith("m:"):
                    kernel["metrics"][key[2:]] = float(value)
                else:
                    kernel[key] = value if key in ("reason", "arguments", "graph") else float(value)
            (graphs if "graph" in kernel else kernels).append(kernel)
    return kernels, graphs, notes


def work_of(metrics):
    """As perfcounters/sources/gpu_metrics.h: half-precision instructions count where they are most of W."""
    def sum_of(weights):
        return sum(weight * metrics.get(name, 0) for name, weight in weights.items())

    half, rest = sum_of(HALF), sum_of(WORK) + sum_of(TENSOR)
    return half + rest if half > rest else rest


def base_of(name):
    """The name of a kernel's function without namespaces, arguments and template arguments."""
    name = re.sub(r"\(anonymous namespace\)::", "", name)
    name = re.split(r"[<(]", name, maxsplit=1)[0]
    return name.split("::")[-1].split(" ")[-1]


def identity(name, grid, block):
    return name, *(",".join(re.findall(r"\d+", text)) for text in (grid, block))


def limited(command, environment, limit):
    """subprocess.run() that ends the command's own processes too when it runs too long: they would hold the counters."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
                               start_new_session=True)
    try:
        out, error = process.communicate(timeout=limit)
        return subprocess.CompletedProcess(command, process.returncode, out, error)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, _ = process.communicate()  # what it printed until then counts
        return subprocess.CompletedProcess(command, -9, out, f"ran longer than {limit} s")


def ncu_run(command, metrics, options, environment, limit):
    """Metrics of each launch of a kernel, grid and block under ncu, from its CSV."""
    ncu = ["ncu", "--csv", "--page", "raw", "--print-units", "base", "--print-kernel-base", "mangled", "--clock-control", "none", "--cache-control", "none",
           "--metrics", ",".join(metrics), *options]
    done = limited(ncu + command, environment, limit)
    lines = [line for line in done.stdout.splitlines() if line.startswith('"')]
    if not lines:
        return {}, (done.stdout + done.stderr)[-2000:]
    # The demangler of C++ writes names as gable does.
    lines = subprocess.run(["c++filt", "--no-strip-underscore"], input="\n".join(lines), capture_output=True, text=True).stdout.splitlines()
    found = {}
    for row in csv.DictReader(io.StringIO("\n".join(lines))):
        if not row["ID"]:
            continue  # the row of units
        values = {m: float(row[m].replace(",", "")) for m in metrics if row.get(m) not in (None, "", "n/a")}
        if has_work(values):
            values["flop"] = work_of(values)
        launches = found.setdefault(" ".join(identity(row["Kernel Name"], row["Grid Size"], row["Block Size"])), {})
        for metric, value in values.items():
            if metric == "flop" or metric in NCU_RUNS[0]:
                launches.setdefault(metric, []).append(value)
    return found, ""


def ncu_kernels(command, options, environment, limit):
    """Metrics of NCU_RUNS by kernel; a run may have seen fewer kernels than another."""
    found, troubles = {}, []
    for metrics, more in options:
        kernels, trouble = ncu_run(command, metrics, more, environment, limit)
        troubles += [trouble] if trouble else []
        for key, values in kernels.items():
            found.setdefault(key, {}).update(values)
    return found, " ".join(troubles)


def run(command, environment, limit):
    start = time.time()
    done = limited(command, environment, limit)
    times, checks = {}, {}
    for line in done.stdout.splitlines():
        words = line.split()
        if len(words) == 2 and re.fullmatch(r"-?[\d.e+-]+", words[1]):
            (checks if words[0].endswith(".check") else times)[words[0]] = float(words[1])
    return {"exit": done.returncode, "wall": time.time() - start, "times": times, "checks": checks,
            "error": done.stderr[-1000:] if done.returncode else ""}


def session(command, mode, options, limit):
    library = os.path.abspath(options.library)
    listener = os.path.join(os.path.dirname(library), "libgable_listen.so")
    with tempfile.TemporaryDirectory() as folder:
        environment = dict(os.environ, CUDA_INJECTION64_PATH=library, GABLE_LISTENER=listener, NVTX_INJECTION64_PATH=listener,
                           GABLE_SESSION_FOLDER=folder, GABLE_SESSION_MODE=mode, GABLE_SESSION_METRICS=",".join(METRICS))
        if options.calls:
            environment["GABLE_SESSION_CALLS"] = str(options.calls)
        result = run(command, environment, limit)
        result["kernels"], result["graphs"], result["notes"] = read_kernels(folder)
        if command[-1] in IN_RANGE:
            result["kernels"] = [kernel for kernel in result["kernels"] if kernel["region"] == REPLAY]
        return result


def launches_of(kernel):
    """What is the same for launches that do the same work."""
    return kernel["name"], kernel["grid"], kernel["block"], kernel["arguments"]


def counts_of(kernels):
    """Metrics per call of launches with the same arguments; their sets of metrics have records of their own."""
    sums = {}
    for kernel in kernels:
        for metric, value in kernel["metrics"].items():
            one = sums.setdefault(launches_of(kernel), {}).setdefault(metric, [0, 0])
            one[0] += value
            one[1] += kernel["counted"]
    return ({key: {metric: value / calls for metric, (value, calls) in one.items()} for key, one in sums.items()},
            {key: max(calls for _, calls in one.values()) for key, one in sums.items()})


def weighted(counts, calls):
    """The mean of each metric over kinds of launches, by how often each ran; of those that have it."""
    sums = {}
    for key, metrics in counts.items():
        for metric, value in metrics.items():
            one = sums.setdefault(metric, [0, 0])
            one[0] += value * calls.get(key, 1)
            one[1] += calls.get(key, 1)
    return {metric: value / weight for metric, (value, weight) in sums.items()}


def blocks_of(grid):
    sides = [int(n) for n in grid.split(",")]
    return sides[0] * sides[1] * sides[2]


def shorter(timed, alone):
    """As perfcounters/program/kernel_counts.cpp: T of the run of kernels alone where that is shorter."""
    medians = {launches_of(k): k["median"] for k in alone}
    for kernel in timed:
        kernel["is_alone"] = launches_of(kernel) in medians
        one = medians.get(launches_of(kernel), kernel["median"])
        if one < kernel["median"]:
            kernel["together"] = kernel["median"]
            kernel["seconds"] *= one / kernel["median"]
            kernel["median"] = one


def graph_slowdowns(timed, alone):
    """Time of each whole CUDA graph with CUPTI's instructions in its kernels, over that without."""
    medians = {g["graph"]: g["median"] for g in alone}
    return [{"calls": g["calls"], "together": g["median"], "alone": medians[g["graph"]],
             "ratio": g["median"] / medians[g["graph"]]} for g in timed if g["graph"] in medians]


def divide_graph_times(kernels, graphs):
    """As perfcounters/program/kernel_counts.cpp: T of kernels that ran in CUDA graphs only, by the graphs' slowdown."""
    alone = sum(g["calls"] * g["alone"] for g in graphs)
    ratio = sum(g["calls"] * g["together"] for g in graphs) / alone if alone else 1
    for kernel in kernels:
        if ratio > 1 and kernel.get("graph_calls") == kernel["calls"] and not kernel.get("is_alone"):
            kernel["together"] = kernel["median"]
            kernel["seconds"] /= ratio
            kernel["median"] /= ratio


def add_events(rows, overhead):
    """T beside the time by events of the unprofiled run."""
    for name, (part, blocks) in ONE_KERNEL.items():
        for row in rows:
            if name in overhead and part in row["name"] and blocks_of(row["grid"]) == blocks:
                row["T_to_events"] = row["median"] / overhead[name]["plain"]


def counted_row(metrics):
    """W, traffic and instructions of a call from its metrics; None: not counted."""
    return {
        "flop": work_of(metrics) if has_work(metrics) else None,
        "read": metrics.get(READ),
        "write": metrics.get(WRITE),
        "l2": 32 * metrics.get(L2, 0),
        "instructions": metrics.get(INSTRUCTIONS[0]),
        "instrumented": metrics.get(INSTRUCTIONS[1]),
    }


def has_work(metrics):
    return any(metric in metrics for metric in WORK)


def mean_call(kernels, counts):
    """The mean call of a kernel whose launches were counted: `counts` are their metrics, weighted by how often each kind ran."""
    weights = {}
    for kernel in kernels:
        weights[launches_of(kernel)] = weights.get(launches_of(kernel), 0) + kernel["calls"]
    seen = {launches: metrics for launches, metrics in counts.items() if launches in weights} or counts
    works = [{launches: {"flop": work_of(m)} for launches, m in some.items() if has_work(m)} for some in (seen, counts)]
    unseen = sum(weights.values()) - sum(weights[launches] for launches in seen if launches in weights)
    return counted_row(weighted(seen, weights)) | {"flop": weighted(works[0] or works[1], weights).get("flop", 0), "unseen": unseen}


def launch_rows(kernels, counts, calls):
    """A row for each kind of launches, with what was counted of it."""
    rows = []
    for kernel in kernels:
        row = {"arguments": kernel["arguments"], "calls": kernel["calls"], "median": kernel["median"]}
        launches = launches_of(kernel)
        if launches in counts:
            row |= {"counted": calls[launches], **counted_row(counts[launches])}
        rows.append(row)
    return rows


def add_known(row):
    """The ratios to what the kernel is known to write and to compute."""
    blocks = blocks_of(row["grid"])
    for (part, known_blocks), known in KNOWN_WRITES.items():
        if part in row["name"] and blocks == known_blocks and row.get("write") is not None:
            row["write_ratio"] = row["write"] / known
    for (part, known_blocks), known in KNOWN_WORK.items():
        if part in row["name"] and blocks == known_blocks:
            works = [kind["flop"] for kind in row.get("launches", []) if kind.get("flop")]
            row["work_ratios"] = [work / nearest(work, known) for work in works]


def compare(timed, counted):
    """One row a kernel, grid and block that was timed, the longest first; where its launches have different arguments,
    each kind of them is one of its `launches`."""
    counts, calls = counts_of(counted)
    reasons = {(k["name"], k["grid"], k["block"]): k["reason"] for k in counted if "reason" in k}
    kinds = {}
    for kernel in timed:
        kinds.setdefault((kernel["name"], kernel["grid"], kernel["block"]), []).append(kernel)
    rows = []
    for key, kernels in kinds.items():
        kernels.sort(key=lambda k: -k["seconds"])
        row = {"name": key[0], "grid": key[1], "block": key[2], "calls": sum(k["calls"] for k in kernels),
               "seconds": sum(k["seconds"] for k in kernels), "median": kernels[0]["median"]}
        if "together" in kernels[0]:
            row["together"] = kernels[0]["together"]
        if key in reasons:
            row["reason"] = reasons[key]
        counts_of_kernel = {launches: metrics for launches, metrics in counts.items() if launches[:3] == key}
        if counts_of_kernel:
            row |= {"counted": sum(calls[launches] for launches in counts_of_kernel), **mean_call(kernels, counts_of_kernel)}
        if len(kernels) > 1:
            row["launches"] = launch_rows(kernels, counts_of_kernel, calls)
        add_known(row)
        rows.append(row)
    return sorted(rows, key=lambda row: -row["seconds"])


def nearest(value, values):
    return min(values, key=lambda other: abs(other - value))


def add_ncu(rows, ncu):
    """ncu's numbers and the ratios to them: means over its launches, and of each kind of launch the nearest one."""
    for row in rows:
        theirs = ncu.get(" ".join(identity(row["name"], row["grid"], row["block"])))
        if "flop" not in row or not theirs:
            continue
        means = {metric: statistics.fmean(values) for metric, values in theirs.items()}
        row["ncu"] = {"launches": max(len(values) for values in theirs.values()),
                      "flop": means.get("flop"), "read": means.get(READ), "write": means.get(WRITE),
                      "instructions": means.get(INSTRUCTIONS[0])}
        for name in ("flop", "read", "write", "instructions"):
            if row["ncu"][name] and row[name] is not None:
                row[name + "_to_ncu"] = row[name] / row["ncu"][name]
        for kind in row.get("launches", []):
            if "flop" in theirs and kind.get("flop"):
                kind["flop_to_ncu"] = kind["flop"] / (nearest(kind["flop"], theirs["flop"]) or float("nan"))


SHOWN_RATIOS = ("flop_to_ncu", "read_to_ncu", "write_to_ncu", "instructions_to_ncu", "write_ratio", "T_to_events")


def show(result, most):
    total = sum(k["seconds"] for k in result["kernels"])
    have = sum(k["seconds"] for k in result["kernels"] if "flop" in k)
    print(f"== {result['name']}: {len(result['kernels'])} kernels, {total:.4g} s; with W and Q {have / max(total, 1e-30):.4f} of "
          f"the time; notes: {result['notes']} {result['errors']} {result['ncu_error']}; wall {result['wall']}")
    for row in result["kernels"][:most]:
        ratios = {key: f"{row[key]:.4f}" if key in row else "-" for key in SHOWN_RATIOS}
        print("   {share:5.1f}% {name:40} {grid:>12} W {flop:.4g} ncu: W {flop_to_ncu} read {read_to_ncu} write {write_to_ncu} "
              "inst {instructions_to_ncu}; known write {write_ratio} W {works}; T {T_to_events} {reason}".format(
                  share=100 * row["seconds"] / total, name=base_of(row["name"])[:40], grid=row["grid"], flop=row.get("flop", 0),
                  works=row.get("work_ratios", "-"), reason=row.get("reason", "")[:60], **ratios), flush=True)
        for kind in row.get("launches", [])[:6]:
            print(f"          {kind['calls']:.0f} launches with other arguments, {kind['median']:.4g} s, W {kind.get('flop') or 0:.6g} "
                  f"ncu's nearest: {kind.get('flop_to_ncu', 0):.4f}")
    for graph in result.get("graphs", []):
        print(f"   graph, {graph['calls']:.0f} launches: {graph['together']:.6g} s with CUPTI's instructions, {graph['alone']:.6g} without: {graph['ratio']:.4f}")


def check_app(name, command, options, ncu_options):
    print("==", name, flush=True)
    plain, clocked, timed = [], [], []
    for _ in range(options.rounds):
        plain.append(run(command, dict(os.environ), options.limit))
        clocked.append(session(command, "time", options, options.limit))
        timed.append(session(command, "kernels", options, options.limit))
    print("   plain", plain[-1], "\n   timed", {k: v for k, v in timed[-1].items() if k not in ("kernels", "graphs")}, flush=True)
    alone = session(command, "alone", options, options.limit)
    shorter(timed[-1]["kernels"], alone["kernels"])
    graphs = graph_slowdowns(timed[-1]["graphs"], alone["graphs"])
    divide_graph_times(timed[-1]["kernels"], graphs)
    counted = session(command, "counters", options, options.limit)
    ncu, trouble = {}, ""
    if ncu_options is not None and not options.no_ncu:
        ncu, trouble = ncu_kernels(command, ncu_options, dict(os.environ, REPLAYS="1"), options.limit)
    result = {"name": name, "command": [os.path.basename(command[0]), *command[1:]], "overhead": {}, "ncu_error": trouble,
              "notes": timed[-1]["notes"] + counted["notes"],
              "wall": {"plain": [r["wall"] for r in plain], "clocked": [r["wall"] for r in clocked], "timed": [r["wall"] for r in timed], "alone": alone["wall"],
                       "counted": counted["wall"]},
              "exits": [r["exit"] for r in plain + clocked + timed + [alone, counted]],
              "errors": [r["error"] for r in plain + clocked + timed + [alone, counted] if r["error"]],
              "graphs": graphs,
              "kernels": compare(timed[-1]["kernels"], counted["kernels"])}
    add_ncu(result["kernels"], ncu)
    result["wrong"] = [(what, value, r["checks"].get(what)) for r in clocked + timed + [alone, counted] for what, value in
                       plain[0]["checks"].items() if abs(r["checks"].get(what, 1e30) - value) > 1e-3 * abs(value)]
    if result["wrong"]:
        print("   WRONG RESULTS:", result["wrong"])
    for what in plain[0]["times"]:
        alone = statistics.median(r["times"][what] for r in plain)
        under_clock, with_gable = (statistics.median(r["times"].get(what) or float("nan") for r in runs) for runs in (clocked, timed))
        result["overhead"][what] = {"plain": alone, "clocked": under_clock, "timed": with_gable, "ratio": under_clock / alone,
                                    "all_plain": [r["times"][what] for r in plain],
                                    "all_clocked": [r["times"].get(what) for r in clocked],
                                    "all_timed": [r["times"].get(what) for r in timed]}
        print(f"   {what}: {alone:.4g} s, under the clock {under_clock:.4g} s: {under_clock / alone:.4f}, with all kernels recorded {with_gable:.4g} s")
    add_events(result["kernels"], result["overhead"])
    show(result, options.show)
    return result


def machine():
    query = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], capture_output=True,
                           text=True).stdout.strip()
    return {"gpu": query, "host": platform.processor() or platform.machine(), "date": time.strftime("%Y-%m-%d")}


def built(source):
    """The program of a .cu file."""
    program = os.path.join(tempfile.mkdtemp(), source.removesuffix(".cu"))
    subprocess.run(["nvcc", "-O3", "-arch=native", "-o", program, os.path.join(HERE, source), "-lcublas"], check=True)
    return program


def programs(options):
    """Name -> command, and options of ncu: the small programs' kernels three times, of the network an eager pass."""
    def is_wanted(names):
        return not options.only or not set(names).isdisjoint(options.only)

    program = options.cuda_program or (built("program_gpu_check.cu") if is_wanted(["cuda"]) else "")
    graphs = options.graph_program or (built("program_graphs.cu") if is_wanted(IN_GRAPHS) else "")
    cuda_work = ["sgemm", "hgemm", "saxpy", "daxpy", "fill", "transpose", "reduction", "streams", "tagged", "steps", "graph", "degrees"]
    python = [sys.executable, os.path.abspath(__file__), "app"]
    few = [(metrics, ["--launch-count", "60", "--kernel-id", ":::[2-4]"]) for metrics in NCU_RUNS]
    marked = [(metrics, ["--profile-from-start", "off"]) for metrics in NCU_HALF_RUNS]
    ranged = [(metrics, ["--nvtx", "--nvtx-include", REPLAY + "/"]) for metrics in NCU_HALF_RUNS]
    in_graphs = {name: ([os.path.abspath(graphs), name, "10"], few) for name in IN_GRAPHS}
    all_programs = {**in_graphs, **{name: (python + [name], ranged) for name in IN_RANGE}, "cuda": ([os.path.abspath(program), *cuda_work], few),
                    "python": (python + ["torch", "triton", "cupy"], few),
                    "resnet50": (python + ["resnet50"], marked),
                    "resnet50_compiled": (python + ["resnet50_compiled"], marked),
                    "all_python": (python + ["torch", "triton", "cupy", "resnet50"], None)}
    return {name: all_programs[name] for name in options.only or [name for name in all_programs if name != "all_python"]}


def write(path, data):
    with open(path, "w") as file:
        json.dump(data, file, indent=1)


def check(options):
    """Exit code 1 if a program computed something else under gable."""
    record = {"machine": machine(), "command": " ".join(sys.argv), "apps": []}
    for name, (command, ncu_options) in programs(options).items():
        try:
            record["apps"].append(check_app(name, command, options, ncu_options))
        except Exception as error:  # a program that is not installed here
            print("   failed:", repr(error)[:500], flush=True)
        write(options.json, record)
    return 1 if any(app["wrong"] for app in record["apps"]) else 0


def only_ncu(options):
    found = {}
    for name, (command, ncu_options) in programs(options).items():
        kernels, trouble = ncu_kernels(command, ncu_options, dict(os.environ), options.limit)
        print(name, len(kernels), "kernels", trouble, flush=True)
        found.update(kernels)
        write(options.json, found)
    return 0


def join(options):
    record, ncu = (json.load(open(path)) for path in (options.check, options.ncu))
    for result in record["apps"]:
        add_ncu(result["kernels"], ncu)
        show(result, options.show)
    write(options.check, record)
    return 0


def run_apps(options):
    for name in options.names:
        PYTHON_APPS[name]()
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True, dest="what")
    app = commands.add_parser("app")
    app.add_argument("names", nargs="+", choices=PYTHON_APPS)
    app.set_defaults(run=run_apps)
    joined = commands.add_parser("join")
    joined.add_argument("check")
    joined.add_argument("ncu")
    joined.set_defaults(run=join)
    checked, counted = commands.add_parser("check"), commands.add_parser("ncu")
    checked.set_defaults(run=check)
    counted.set_defaults(run=only_ncu)
    checked.add_argument("--library", required=True, help="libgable_cupti.so")
    checked.add_argument("--rounds", type=int, default=3, help="runs without gable and timed, in turn")
    checked.add_argument("--calls", type=int, help="counted calls of each kernel")
    checked.add_argument("--no-ncu", action="store_true")
    for command in (checked, counted):
        command.add_argument("--json", required=True)
        command.add_argument("--limit", type=float, default=300, help="seconds that one run may take")
        command.add_argument("--cuda-program", help="a built program_gpu_check.cu")
        command.add_argument("--graph-program", help="a built program_graphs.cu")
        command.add_argument("--only", nargs="*", help="all, blas, updated (kernels in graphs only), torch_graph, resnet50_replays, cuda, python, resnet50, "
                             "resnet50_compiled, all_python")
    for command in (checked, joined):
        command.add_argument("--show", type=int, default=12, help="rows")
    options = parser.parse_args()
    return options.run(options)


if __name__ == "__main__":
    sys.exit(main())
