"""bench/fit_choice.py: laws that are known are found again; the tables are those that C++ reads."""

import json
import math
import random
import re
from pathlib import Path

import pytest

pytest.importorskip("numpy")
import fit_choice

ROOT = Path(fit_choice.__file__).resolve().parents[1]


def layer(problem, cpu=1.0, onednn=1.0, dtype="f32", layout="nhwc"):
    return fit_choice.Layer(problem, dtype, layout, {"cpu": cpu, "onednn": onednn})


def test_extents_are_those_of_the_descriptor():
    e = layer("g2mb3ic8ih9iw7oc4kh3kw1sh2ph1pw0").extents
    assert (e["g"], e["mb"], e["ih"], e["iw"], e["oh"], e["ow"], e["kw"], e["sw"]) == (2, 3, 9, 7, 5, 4, 1, 2)
    assert fit_choice.shape_class(e) == "grouped"


@pytest.mark.parametrize(
    ("problem", "name"),
    [
        ("g8mb1ic8ih4oc8kh3ph1", "depthwise"),
        ("mb1ic3ih4oc8kh3ph1", "few_channels"),
        ("mb1ic16ih4oc8kh1", "pointwise"),
        ("mb1ic16ih4oc8kh3ph1", "spatial"),
        ("mb1ic16ih1oc8kh1", "vectors"),
        ("mb1ic6ih1oc144kh1", "vectors"),
        ("mb8ic16ih1oc8kh3ph1", "spatial"),
    ],
)
def test_classes(problem, name):
    assert fit_choice.shape_class(layer(problem).extents) == name


def test_first_layers_are_told_apart_by_their_windows():
    def last(problem):
        return fit_choice.features(layer(problem))[-11:-7]

    assert last("mb1ic3ih224oc64oh56kh4sh4") == [0, 1, pytest.approx(math.log(16 / 12)), pytest.approx(math.log(32 / 12))]
    assert last("mb1ic3ih224oc64oh112kh3sh2ph1")[:2] == [0, 0]
    assert last("mb1ic3ih224oc64oh56kh3sh4")[:2] == [1, 0]
    assert last("mb1ic16ih224oc64oh56kh4sh4") == [0, 0, 0, 0]


@pytest.mark.parametrize(
    ("problem", "found"),
    [
        ("g2mb1ic32ih9oc64kh3ph1", [1, 0]),
        ("g2mb1ic8ih9oc24kh1", [0, 1]),
        ("g2mb1ic32ih9oc24kh1", [0, 0]),
        ("g2mb1ic28ih9oc28kh3ph1", [0, 0]),
        ("g16mb1ic16ih9oc64kh3ph1", [0, 0]),
        ("mb1ic16ih9oc16kh3ph1", [0, 0]),
    ],
)
def test_groups_are_told_apart_by_whole_blocks_of_channels(problem, found):
    assert fit_choice.features(layer(problem))[-7:-5] == found


def test_layers_of_few_pixels_are_told_apart_by_their_weights_and_by_windows_beyond_the_image():
    share, beyond = fit_choice.features(layer("mb1ic64ih2oc32kh3ph1"))[-5:-3]
    assert share == pytest.approx(math.log(1 + 64 * 32 * 9 / (64 * 4 + 32 * 4)))
    assert beyond == pytest.approx(2 * math.log(3 / 2))
    assert fit_choice.features(layer("mb1ic64ih9oc32kh3ph1"))[-4] == 0


@pytest.mark.parametrize(
    ("problem", "found"),
    [
        ("g96mb1ic96ih56oc96oh14kh3sh4ph1", 1),
        ("g96mb1ic96ih32oc96oh8kh3sh4ph1", 0),
        ("g96mb1ic96ih2iw128oc96oh2ow32kh1kw3sh1sw4ph0pw1", 1),
        ("g96mb1ic96ih56oc96oh28kh3sh2ph1", 0),
        ("mb1ic96ih56oc96oh14kh4sh4", 0),
    ],
)
def test_depthwise_layers_of_large_planes_with_wide_strides_are_told_apart(problem, found):
    assert fit_choice.features(layer(problem))[-3] == found


@pytest.mark.parametrize(
    ("problem", "taps", "padding"),
    [
        ("mb1ic16ih2oc8kh5ph2", 3, 1),  # of five rows, outputs read two with the last three and two with the first three
        ("mb1ic16ih3oc8kh5ph2", 5, 2),
        ("mb1ic16ih1oc8kh3ph1", 1, 0),
        ("mb1ic16ih9oc8kh3ph1", 3, 1),
    ],
)
def test_cpu_computes_windows_without_the_taps_that_read_padding_alone(problem, taps, padding):
    e = fit_choice.as_computed(layer(problem), "cpu").extents
    assert (e["kh"], e["kw"], e["ph"], e["pw"]) == (taps, taps, padding, padding)
    assert (e["oh"], e["ow"]) == (layer(problem).extents["oh"], layer(problem).extents["ow"])
    assert fit_choice.is_usual(layer(problem)) == (taps == layer(problem).extents["kh"])


def test_layers_that_onednn_keeps_from_brgemm_are_not_usual():
    assert not fit_choice.is_usual(layer("mb1ic16ih9oc8kh2sh3"))  # a stride beyond the window
    assert not fit_choice.is_usual(layer("mb1ic16ih9iw3oc8oh9ow1kh3sw3ph1pw0"))
    assert fit_choice.is_usual(layer("mb1ic16ih9oc8kh1sh3"))
    wide_rows = "g16mb1ic16ih9iw70oc16oh9ow70kh1kw15ph0pw7"
    assert not fit_choice.is_usual(layer(wide_rows, dtype="bf16"))
    assert fit_choice.is_usual(layer(wide_rows))
    assert fit_choice.is_usual(layer(wide_rows.replace("16", "17"), dtype="bf16"))


def test_windows_that_crash_in_onednn_2_are_usual_beside_onednn_3():
    def is_usual(channels, kind, dtype="bf16"):
        return fit_choice.is_usual(fit_choice.Layer(f"mb1ic{channels}ih9oc64kh9ph4", dtype, "nhwc", {}, kind=kind))

    assert not is_usual(63, "vectors")
    assert not is_usual(95, "wide")
    assert is_usual(63, "wide_3")
    assert is_usual(31, "wide")
    assert is_usual(64, "wide")
    assert is_usual(63, "wide", "f32")


def layers_by_law():
    """onednn takes 1 / channels of the time of cpu at 16 channels, times 16."""
    rng = random.Random(1)
    found = []
    for _ in range(80):
        channels, size = rng.choice([9, 12, 16, 24, 32, 48, 64]), rng.choice([4, 7, 14, 28])
        one = layer(f"mb1ic{channels}ih{size}oc{rng.choice([16, 32, 64])}kh1")
        base = fit_choice.roof(one)
        found.append(layer(one.problem, cpu=2 * base, onednn=2 * base * 16 / channels))
    return found


def test_a_law_of_the_extents_is_found_again_and_decides():
    layers = layers_by_law()
    fits = fit_choice.fit_all(layers)
    for one in layers:
        for device, seconds in one.seconds.items():
            fitted = fits[device, 0, "nhwc", "f32", "pointwise"].seconds(one)
            assert fitted == pytest.approx(seconds, rel=0.1)
    assert fit_choice.pick(layer("mb1ic64ih14oc32kh1"), fits) == "onednn"
    assert fit_choice.pick(layer("mb1ic9ih14oc32kh1"), fits) == "cpu"


def test_one_image_on_several_threads_has_a_law_of_its_own():
    one = layers_by_law()
    several = [
        fit_choice.Layer(x.problem, x.dtype, x.layout, {"cpu": 9 * x.seconds["cpu"], "onednn": x.seconds["cpu"]}, threads=4) for x in one
    ]
    fits = fit_choice.fit_all([*one, *several])
    assert [fit_choice.load_of(x) for x in (one[0], several[0], layer("mb2ic16ih4oc8kh1"))] == [0, 2, 3]
    assert fit_choice.pick(several[0], fits) == "onednn"
    assert fit_choice.pick(layer("mb1ic9ih14oc32kh1"), fits) == "cpu"


def test_two_threads_have_a_law_of_their_own_that_also_stands_for_more():
    one = layers_by_law()
    two = [fit_choice.Layer(x.problem, x.dtype, x.layout, {**x.seconds, "cpu": 9 * x.seconds["cpu"]}, threads=2) for x in one]
    fits = fit_choice.fit_all([*one, *two])
    assert fit_choice.load_of(two[0]) == 1
    assert fit_choice.pick(two[0], fits) == "onednn"
    four = fit_choice.Layer(two[0].problem, "f32", "nhwc", two[0].seconds, threads=4)
    assert fit_choice.pick(four, fits) == "onednn"  # no layers of four threads were measured
    assert fit_choice.pick(layer("mb1ic9ih14oc32kh1"), fits) == "cpu"


def test_each_record_counts_for_itself(tmp_path):
    time = {"runs": 50, "fastest": 1.0, "q1": 1.0}
    rows = [
        {"problem": "mb1ic16ih4oc8kh1", "dtype": "f32", "layout": "nhwc", "threads": 1, "device": device, "T": time}
        for device in fit_choice.DEVICES
    ]
    files = [tmp_path / "a.json", tmp_path / "b.json"]
    for file in files:
        file.write_text(json.dumps({"measurements": rows}))
    assert len(fit_choice.read(map(str, files))) == 2


def test_rows_of_few_runs_are_left_out(tmp_path):
    def row(device, runs):
        time = {"runs": runs, "fastest": 1e-5, "q1": 1e-5}
        return {"problem": "mb1ic16ih4oc8kh1", "dtype": "f32", "layout": "nhwc", "threads": 1, "device": device, "T": time}

    record = tmp_path / "record.json"
    for runs, count in ((50, 1), (2, 0)):
        record.write_text(json.dumps({"measurements": [row("cpu?threads=1", 50), row("onednn?threads=1", runs)]}))
        assert len(fit_choice.read([str(record)])) == count
    assert fit_choice.enough_runs({"runs": 5, "fastest": 1e-3})


def parse_tables(text):
    """The named class tables of a header, and the names in the table of all."""
    classes, index = text.split("// Where no layers were measured")
    tables = dict(re.findall(r"ClassFits (k\w+)\{\{(?:\s*// [a-z ]+\d+ layers)?(.*?)\n\}\};", classes, re.DOTALL))
    return tables, re.findall(r"\bk\w+\b", re.split(r"ShapeFits(?:Wide|Amx)?3?\{\{", index)[1])


@pytest.mark.parametrize("cpus", ["", "_wide", "_amx"])
@pytest.mark.parametrize("device", fit_choice.DEVICES)
def test_the_shipped_tables_have_the_features_of_the_model_and_are_written_once(device, cpus):
    model = (ROOT / "backends" / "shape_model.h").read_text(encoding="utf-8")
    count = int(re.search(r"kShapeFeatures = (\d+)", model).group(1))
    assert len(fit_choice.features(layer("mb1ic16ih4oc8kh1"))) == count
    tables, names = parse_tables((ROOT / "backends" / device / f"{device}_shape_fits{cpus}.h").read_text(encoding="utf-8"))
    assert len(names) == len(fit_choice.LOADS) * len(fit_choice.LAYOUTS) * len(fit_choice.DTYPES)
    assert set(names) == set(tables)
    assert len(set(tables.values())) == len(tables)
    for table in tables.values():
        numbers = re.findall(r"-?\d+(?:\.\d+)?(?:e-?\d+)?(?=[,}])", table)
        assert len(numbers) == len(fit_choice.CLASSES) * (count + 2)
        assert all(math.isfinite(float(number)) for number in numbers)


def test_what_was_not_measured_names_the_nearest_table():
    fits = {(device, 0, "nhwc", dtype, name): fit_choice.Fit([value], value, value)
            for device in fit_choice.DEVICES for value, dtype in enumerate(("f32", "bf16")) for name in fit_choice.CLASSES}
    fits["cpu", 3, "nhwc", "f32", "spatial"] = fit_choice.Fit([7], 7, 7)
    text = fit_choice.header(fits, "cpu", {(3, "nhwc", "f32"): "from 5 layers"}, "vectors")
    tables, names = parse_tables(text)
    first, half, images = "kCpuOneThreadNhwcF32", "kCpuOneThreadNhwcBf16", "kCpuImagesNhwcF32"
    assert names == 6 * [first, half, half] + 2 * [images, half, half]
    assert set(tables) == {first, half, images}
    assert "ShapeFit{{7}, 7, 7},  // spatial" in tables[images]
    assert re.findall(r"(k\w+)\{\{\s*// from (\d+) layers", text) == [(images, "5")]


@pytest.mark.parametrize("kind", fit_choice.KINDS)
def test_tables_that_are_kept_are_written_as_they_were(kind):
    """All but their format: a table that stands for another one still does."""
    kept = fit_choice.shipped_tables(ROOT / "backends", kind)
    for device in fit_choice.DEVICES[1:] if kind in fit_choice.CPU_KIND else fit_choice.DEVICES:
        before = fit_choice.header_file(ROOT / "backends", device, kind).read_text(encoding="utf-8")
        origins = fit_choice.shipped_origins(ROOT / "backends", kind)
        text = fit_choice.header(kept, device, origins, kind)
        assert re.findall(r"// .* layers$", text, re.MULTILINE) == re.findall(r"// \w.*\d layers$", before, re.MULTILINE)
        tables, names = parse_tables(text)
        tables_before, names_before = parse_tables(before)
        assert names == names_before
        assert {name: table.split() for name, table in tables.items()} == {
            name: re.sub(r"([{,])\s+", r"\1 ", table).replace("{ ", "{").split() for name, table in tables_before.items()
        }


def test_layers_replace_kept_laws_of_their_own_class_only():
    kept = {(device, 0, "nhwc", "f32", name): fit_choice.Fit([7.0], 7, 7) for device in fit_choice.DEVICES for name in fit_choice.CLASSES}
    fits = fit_choice.fit_all(layers_by_law(), kept)
    assert fits["cpu", 0, "nhwc", "f32", "spatial"].least == 7
    assert fits["cpu", 0, "nhwc", "f32", "pointwise"].most < 1
    assert kept["cpu", 0, "nhwc", "f32", "pointwise"].least == 7


@pytest.mark.parametrize("only_move", [True, False])
def test_where_cpu_has_one_table_for_two_versions_of_onednn_only_the_law_of_onednn_changes(only_move):
    kept = {(device, 0, "nhwc", "f32", "pointwise"): fit_choice.Fit([0.0] * fit_choice.COUNT, -5, 5) for device in fit_choice.DEVICES}
    layers = [fit_choice.replace(one, kind="wide_3") for one in layers_by_law()]
    fits = fit_choice.fit_all(layers, kept, only_move)
    assert fits["cpu", 0, "nhwc", "f32", "pointwise"].weights == kept["cpu", 0, "nhwc", "f32", "pointwise"].weights
    assert fit_choice.pick(fit_choice.replace(layer("mb1ic64ih14oc32kh1"), kind="wide_3"), fits) == "onednn"
    assert fit_choice.pick(fit_choice.replace(layer("mb1ic9ih14oc32kh1"), kind="wide_3"), fits) == "cpu"


def test_only_moved_laws_differ_from_the_kept_ones_in_what_layers_decide():
    flat = fit_choice.Fit([0.0] * len(fit_choice.features(layers_by_law()[0])), -1, 1)
    kept = {(device, 0, "nhwc", "f32", name): flat for device in fit_choice.DEVICES for name in fit_choice.CLASSES}
    fits = fit_choice.fit_all(layers_by_law(), kept, only_move=True)
    assert fits["cpu", 0, "nhwc", "f32", "spatial"] == flat
    for a, b in zip(fits["cpu", 0, "nhwc", "f32", "pointwise"].weights, fits["onednn", 0, "nhwc", "f32", "pointwise"].weights):
        assert a == pytest.approx(-b)
    assert fit_choice.pick(layer("mb1ic64ih14oc32kh1"), fits) == "onednn"
    assert fit_choice.pick(layer("mb1ic9ih14oc32kh1"), fits) == "cpu"


def test_classes_that_are_not_asked_for_keep_their_laws(tmp_path):
    rows = [
        {
            "problem": f"{kind}ih{size}oc{32 * (1 if kind == 'mb1ic32' else 2)}kh1",
            "dtype": "f32",
            "layout": "nhwc",
            "threads": 2,
            "device": device,
            "T": {"runs": 50, "fastest": seconds, "q1": seconds},
        }
        for kind in ("mb1ic32", "g2mb1ic64")
        for size in range(5, 45)
        for device, seconds in (("cpu", 1e-5 * size), ("onednn", 3e-5 * size))
    ]
    record = tmp_path / "bench.json"
    record.write_text(json.dumps({"measurements": rows}))
    for device in fit_choice.DEVICES:
        (tmp_path / device).mkdir()
    arguments = ["--fit", str(record), "--cpu", "wide", "--keep", "--classes", "pointwise", "--write", str(tmp_path)]
    assert fit_choice.main(arguments) == 0
    before, after = (fit_choice.shipped_tables(folder, "wide") for folder in (ROOT / "backends", tmp_path))
    changed = {key for key, fit in after.items() if before[key] != fit}
    assert changed == {(device, 1, "nhwc", "f32", "pointwise") for device in fit_choice.DEVICES}


def test_records_of_regret_are_read_too(tmp_path):
    record = tmp_path / "regret.json"
    taken = {"cpu?threads=4": 2.0, "onednn?threads=4": 1.0}
    times = [{"device": device, "kernel": "direct", "seconds": seconds} for device, seconds in taken.items()]
    row = {"problem": "mb1ic16ih4oc8kh1", "dtype": "bf16", "layout": "nchw"}
    document = {"device": "auto?only=cpu+onednn&threads=4", "layers": [{**row, "times": times}, {**row, "times": times[:1]}]}
    record.write_text(json.dumps(document))
    (one,) = fit_choice.read([str(record)], "amx")
    assert (one.threads, one.kind, one.seconds) == (4, "amx", {"cpu": 2.0, "onednn": 1.0})


def test_the_law_is_moved_to_where_the_layers_that_decide_lie():
    """Below 64 channels cpu is 3 times as fast, which no straight line reaches; above it oneDNN is faster by a fourth."""
    layers = []
    for channels in (9, 12, 16, 20, 24, 28, 32, 36, 40, 48, 56, 72, 80, 96, 112, 128):
        for size in (7, 14, 28):
            one = layer(f"mb1ic{channels}ih{size}oc64kh1")
            base = fit_choice.roof(one)
            layers.append(layer(one.problem, cpu=base, onednn=3 * base if channels < 64 else 0.75 * base))

    def lost(laws):
        cpu, onednn = ([law.seconds(one) for one in layers] for law in laws)
        picks = ["onednn" if b * fit_choice.MARGIN < a else "cpu" for a, b in zip(cpu, onednn)]
        return sum(math.log(one.seconds[pick] / min(one.seconds.values())) for one, pick in zip(layers, picks))

    squares = tuple(fit_choice.fit(layers, device) for device in fit_choice.DEVICES)
    moved = fit_choice.sharpened(layers, squares)
    assert lost(squares) > 0
    assert lost(moved) < 0.5 * lost(squares)
    x = fit_choice.features(layers[0])
    assert sum(law.log(x) for law in moved) == pytest.approx(sum(law.log(x) for law in squares), abs=0.05)


def test_two_threads_with_amx_are_predicted_longer_than_measured():
    problems = [f"mb1ic{channels}ih{size}oc64kh1" for channels in (16, 32, 64, 96) for size in (7, 14, 28)]
    for kind, factor in (("wide", 1.0), ("amx", 1.1)):
        layers = [fit_choice.Layer(one, "f32", "nhwc", {"cpu": 1e-5, "onednn": 2e-5}, 2, kind) for one in problems]
        fits = fit_choice.fit_all(layers)
        for device, seconds in (("cpu", 1e-5), ("onednn", 2e-5)):
            law = fits[device, 1, "nhwc", "f32", "pointwise"]
            assert law.seconds(layers[5]) == pytest.approx(factor * seconds, rel=0.02)
            kept = fit_choice.fit_all(layers, fits, only_move=True)[device, 1, "nhwc", "f32", "pointwise"]
            assert kept.seconds(layers[5]) == pytest.approx(factor * seconds, rel=0.02)
    for device in fit_choice.DEVICES:
        file = fit_choice.header_file(ROOT / "backends", device, "amx")
        assert fit_choice.longer_words("amx") in file.read_text(encoding="utf-8")


def test_laws_are_replaced_where_cross_validation_gains_and_keep_their_level():
    flat = fit_choice.Fit([0.0] * fit_choice.COUNT, -3, 3)
    kept = {(device, 0, "nhwc", "f32", name): flat for device in fit_choice.DEVICES for name in fit_choice.CLASSES}
    layers = layers_by_law()
    fits, origins = fit_choice.selected(layers, kept)
    assert origins == {(0, "nhwc", "f32"): "moved by 80 layers"}
    assert fits["cpu", 0, "nhwc", "f32", "spatial"] == flat
    assert fit_choice.pick(layer("mb1ic64ih14oc32kh1"), fits) == "onednn"
    assert fit_choice.pick(layer("mb1ic9ih14oc32kh1"), fits) == "cpu"
    level = sum(math.log(fit_choice.predicted(one, fits, device) / fit_choice.roof(one)) for one in layers for device in one.seconds)
    assert abs(level) / len(layers) < 0.3
    right = dict(fits)
    assert fit_choice.selected(layers, right) == (right, {})


def test_half_empty_panels_are_told_apart():
    assert fit_choice.features(layer("mb1ic64ih14oc48kh1"))[-2] == pytest.approx(math.log(64 / 48))
    for outputs in (8, 16, 32, 64):
        assert fit_choice.features(layer(f"mb1ic64ih14oc{outputs}kh1"))[-2] == 0


def test_more_channels_than_tiles_keep_are_told_apart():
    def last(problem):
        return fit_choice.features(layer(problem))[-1]

    assert last("mb1ic65ih14oc48kh1") == pytest.approx(64 / 65)
    assert last("mb1ic640ih14oc48kh1") == pytest.approx(0.1)
    assert last("mb1ic64ih14oc48kh1") == last("mb1ic640ih14oc16kh1") == last("g20mb1ic640ih14oc640kh1") == 0
