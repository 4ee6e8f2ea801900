#!/usr/bin/env python3
"""Compares gable's GPU counts with known work and with ncu.

  bench/counting/gpu_counters_check.py BUILD OUT.json [NAME...]

BUILD holds bin/gable_gpu_counters and lib/, as a build folder of gable does. Each subject (a copy, chains of FFMA and of
mma.sync, products, convolutions) is counted in process, then once under ncu, kernel by kernel, with the same metrics. The
record has counter/expected for W and Q, counted W over the FLOP that the kernel's tiles execute, and gable/ncu for every
metric. Exit code 1 if W differs from the executed FLOP by more than 0.5 %, the copy's Q(dram) by more than 2 %, or a metric
of W from ncu's by more than 1 %; 4 if the GPU can't be used. Traffic of DRAM and L2 depends on what the caches hold before,
and ncu restores memory between passes; for those metrics ncu runs the program again for each pass (application replay).
They and stall ratios, which depend on timing, are recorded together with ncu's but not judged. Needs the NVIDIA driver,
CUPTI, and ncu on the PATH.
"""

import csv
import datetime
import io
import json
import os
import shutil
import subprocess
import sys

WORK_TOLERANCE = 0.005
COPY_TOLERANCE = 0.02
NCU_TOLERANCE = 0.01


def run(command, environment):
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def number(text):
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return None


def parse_ncu(text, metrics):
    """Each metric summed over the kernels (ratios only of a single one), and the kernels."""
    lines = [line for line in text.splitlines() if line.startswith('"')]
    rows = list(csv.DictReader(io.StringIO("\n".join(lines))))[1:]  # the first row holds units
    values = {}
    for metric in metrics:
        column = [number(row.get(metric) or "") for row in rows]
        if not column or None in column:
            continue
        if metric.endswith(".ratio") and len(column) > 1:
            continue
        values[metric] = sum(column)
    return values, [row.get("Kernel Name", "?") for row in rows]


def ncu_values(program, name, metrics, replay, environment):
    command = ["ncu", "--csv", "--page", "raw", "--print-units", "base", "--profile-from-start", "off",
               "--replay-mode", replay, "--cache-control", "none", "--clock-control", "none", "--metrics", ",".join(metrics),
               program, "once", name]
    result = run(command, environment)
    values, kernels = parse_ncu(result.stdout, metrics)
    if not values:
        return {}, [], (result.stdout + result.stderr)[-2000:]
    return values, kernels, ""


def ratio(a, b):
    return a / b if b else (1.0 if a == b else None)


def compare(subject, values):
    for metric, ncu in values.items():
        counted = subject["metrics"].get(metric)
        if counted is not None and (counted or ncu):  # two zeros give no ratio
            subject["ncu"][metric] = {"counted": counted, "ncu": ncu, "ratio": ratio(counted, ncu)}


def is_traffic(metric):
    return metric.startswith(("dram__", "lts__"))


def is_work(metric):
    return "sass_thread_inst" in metric or "ops_path_tensor" in metric


def failures(subject):
    found = []
    ratios = subject["ratio"]
    if subject["executed"] and abs(subject["of_executed"] - 1) > WORK_TOLERANCE:
        found.append(f"W is {subject['of_executed']} of what is executed")
    if subject["name"].startswith("copy") and abs(ratios.get("Q(dram)", 0) - 1) > COPY_TOLERANCE:
        found.append(f"Q(dram) is {ratios.get('Q(dram)')} of what is known")
    for metric, both in subject["ncu"].items():
        if is_work(metric) and both["ratio"] != 1 and (both["ratio"] is None or abs(both["ratio"] - 1) > NCU_TOLERANCE):
            found.append(f"{metric} is {both['counted']}, ncu's {both['ncu']}")
    return found


def table_row(subject):
    texts = [f"{name} {value:.5f}" for name, value in subject["ratio"].items()]
    if subject["executed"]:
        texts.append(f"W/executed {subject['of_executed']:.5f}")
    worst = [abs(both["ratio"] - 1) for metric, both in subject["ncu"].items()
             if is_work(metric) and both["ratio"] is not None]
    beside = f"work/ncu within {max(worst):.2%}" if worst else "no ncu"
    return f"{subject['name']:<30} {subject['kernel']:<16} {subject['passes']:>2} passes  {'  '.join(texts)}  {beside}"


def check_subject(subject, program, environment):
    subject["ncu"], subject["failures"] = {}, []
    if "refused" in subject:
        print(f"{subject['name']:<30} refused: {subject['refused']}", flush=True)
        return
    subject["ratio"] = {name: ratio(subject["counted"][name]["value"], expected)
                        for name, expected in subject["expected"].items() if "value" in subject["counted"].get(name, {})
                        and expected}
    subject["of_executed"] = ratio(subject["counted"]["W"].get("value", 0), subject["executed"])
    for replay, wanted in (("kernel", lambda metric: not is_traffic(metric)), ("application", is_traffic)):
        if not shutil.which("ncu"):
            break
        metrics = [metric for metric in subject["metrics"] if wanted(metric)]
        values, subject["kernels"], trouble = ncu_values(program, subject["name"], metrics, replay, environment)
        compare(subject, values)
        if trouble:
            subject["ncu_said"] = trouble
    subject["failures"] = failures(subject)
    print(table_row(subject), *subject["failures"], sep="\n    ! ", flush=True)


def main():
    if len(sys.argv) < 3:
        print(__doc__, file=sys.stderr)
        return 2
    build, out, names = os.path.abspath(sys.argv[1]), sys.argv[2], sys.argv[3:]
    environment = dict(os.environ)
    environment["LD_LIBRARY_PATH"] = ":".join(filter(None, [build + "/lib", environment.get("LD_LIBRARY_PATH")]))
    program = build + "/bin/gable_gpu_counters"
    counted = run([program, "count", *names], environment)
    if counted.returncode != 0:
        print(counted.stderr, file=sys.stderr)
        return 4
    record = json.loads(counted.stdout)
    record["date"] = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    record["command"] = " ".join(["bench/counting/gpu_counters_check.py", "BUILD", *sys.argv[2:]])
    for subject in record["subjects"]:
        check_subject(subject, program, environment)
        with open(out, "w", encoding="utf-8") as file:
            json.dump(record, file, indent=1)
    return 1 if any(subject["failures"] for subject in record["subjects"]) else 0


if __name__ == "__main__":
    sys.exit(main())
