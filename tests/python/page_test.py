"""The report's page in a browser: what it shows of a record, and what a reader can do with it."""

import copy
import csv
import io
import json
import math
import time
import xml.etree.ElementTree as ElementTree

import pytest

from page_tools import (  # noqa: F401 (chromium is a fixture)
    COUNTED, CPU, GPU, RESULTS, choose, chromium, eventually, hover, mark, page, place, record, shown, tick_value,
)


def many_rows(count, spot=False):
    """A record with `count` layers, all in one spot or everywhere under the roofs."""
    study = record(CPU)
    model, rows = study["measurements"][0], []
    for number in range(count):
        flop, intensity = 1e9, 30.0 if spot else 2 * 500 ** (number / count)
        rate = 1e11 if spot else 3e11 * (0.02 + 0.9 * ((number * 7919) % 1000) / 1000)
        row = copy.deepcopy(model) | {"name": f"layer{number}", "problem": f"mb1ic{number + 1}ih48oc6oh44kh5",
                                      "intensity": intensity, "gflops": rate / 1e9, "percent_of_roof": rate / 4.94e9}
        row["W"] = {"source": "analytic", "flop": flop, "analytic": flop}
        bytes_ = flop / intensity
        row["Q"] = {"dram": {"source": "analytic", "bytes": bytes_, "analytic": bytes_}}
        seconds = flop / rate
        row["T"] |= {"seconds": seconds, "q1": seconds * 0.99, "q3": seconds * 1.01, "fastest": seconds * 0.98}
        row["dtype"] = ["f32", "bf16", "f16"][number % 3]
        row["flags"] = ["too fast"] if number % 50 == 0 else []
        rows.append(row)
    study["measurements"] = rows
    return study


def test_a_part_whose_data_stay_in_the_caches_stands_at_its_cache_s_intensity(page):
    study = record(CPU)
    rows = [copy.deepcopy(study["measurements"][0]) for _ in range(2)]
    for row, level in zip(rows, ("dram", "l1")):
        row |= {"name": f"in {level}", "op": "region", "problem": "", "called": {"calls": 1, "seconds": row["T"]["seconds"]}}
        row["W"] = {"source": "simulated", "flop": 1e9, "analytic": 0}
        row["Q"] = {level: {"source": "simulated", "bytes": 4e8, "analytic": None}}
        row |= {"intensity": 2.5, "gflops": 1 / row["T"]["seconds"]}
        row.pop("limits", None)
    rows[1] |= {"bound": "memory:l1", "roof": "L1 read", "percent_of_roof": 70}
    study["measurements"] = rows
    one = page(study)
    assert one.count(".point") == 2
    assert place(one, 0)[0] == pytest.approx(place(one, 1)[0], abs=1)  # both have 2.5 FLOP/byte
    hover(one, 1)
    assert "2.50 (L1) FLOP/byte" in one.text(".card")
    assert "in l1 (L1)" in one.text("#measurements")


def test_each_row_of_the_record_is_in_the_page_as_it_was_measured(page):
    one = page(CPU, COUNTED)
    rows = record(CPU)["measurements"] + record(COUNTED)["measurements"]
    data = json.loads(one.text("#data"))
    assert len(data["points"]) == len(rows)
    for row, point in zip(rows, data["points"]):
        assert point["problem"] == row["problem"] and point["kernel"] == row["kernel"]
        assert point["seconds"] == row["T"]["seconds"] and point["q1"] == row["T"]["q1"] and point["q3"] == row["T"]["q3"]
        assert point["flop"] == row["W"]["flop"]
        assert {k: v["bytes"] for k, v in point["traffic"].items()} == {k: v["bytes"] for k, v in row["Q"].items()}
        assert (point["bound"] or None, point["roof"] or None) == (row["bound"], row["roof"])
        assert point.get("percent") == row["percent_of_roof"]
        assert point["flags"] == (row.get("flags") or [])
        assert point["source"] == row["Q"]["dram"]["source"]
    choose(one, "button.more")
    cells = one.run("[...document.querySelectorAll('#measurements tbody tr')].map((r) => [+r.dataset.i, ...[...r.cells].map((c) => c.textContent)])")
    assert len(cells) == len(rows)
    heads = one.run("[...document.querySelectorAll('#measurements thead th')].map((h) => h.textContent)")
    for index, *texts in cells:
        cell, row = dict(zip(heads, texts)), rows[index]
        assert cell["Kernel"] == row["kernel"] and cell["Roof"] == (row["roof"] or "–")
        assert cell["% of roof"] == f"{row['percent_of_roof']:.1f}"
        assert cell["W, Q from"] == f"{row['W']['source']}, {row['Q']['dram']['source']}"


def test_marks_stand_where_the_record_puts_them(page):
    one = page(COUNTED, fragment="names=0")
    ticks = one.run("""[...document.querySelectorAll('.figure g[aria-hidden] text')].map((t) =>
        [t.textContent, t.classList.contains('mid'), +t.getAttribute('x'), +t.getAttribute('y')])""")

    def axis(horizontal):
        known = [(math.log10(tick_value(t)), x if horizontal else y - 4)
                 for t, mid, x, y in ticks if mid == horizontal and tick_value(t)]
        (a, at_a), (b, at_b) = known[0], known[-1]
        return lambda value: at_a + (math.log10(value) - a) / (b - a) * (at_b - at_a)

    x_at, y_at = axis(True), axis(False)
    for index, row in enumerate(record(COUNTED)["measurements"]):
        x, y = place(one, index)
        assert x == pytest.approx(x_at(row["W"]["flop"] / row["Q"]["dram"]["bytes"]), abs=1)
        assert y == pytest.approx(y_at(row["W"]["flop"] / row["T"]["seconds"]), abs=1)


def test_hover_shows_the_card_and_lights_row_and_roof(page):
    one = page(COUNTED)
    assert one.run("document.querySelector('.card').hidden")
    rows = record(COUNTED)["measurements"]
    index = next(i for i, row in enumerate(rows) if row["bound"] == "memory:l1")
    hover(one, index)
    assert not one.run("document.querySelector('.card').hidden")
    card = one.text(".card")
    assert rows[index]["kernel"] in card and "shared memory read" in card
    assert one.run("document.querySelector('#measurements tr.lit').dataset.i") == str(index)
    assert f"{rows[index]['percent_of_roof']:.0f} % of shared memory read" in one.text(".hover")
    # Under a compute roof, the distance from the mark to the lit line is the headroom.
    index = next(i for i, row in enumerate(rows) if row["bound"] == "compute" and row["dtype"] == "f32")
    hover(one, index)
    top = one.run("+document.querySelector('.hover .used').getAttribute('y1')")
    decade = one.run("""(() => { const y = (text) => +[...document.querySelectorAll('.figure .soft.end')]
        .find((t) => t.textContent === text).getAttribute('y'); return y("100T") - y("1P"); })()""")
    assert (place(one, index)[1] - top) / decade == pytest.approx(-math.log10(rows[index]["percent_of_roof"] / 100), abs=0.02)
    one.move(3, 3)
    assert one.run("document.querySelector('.card').hidden") and one.count(".hover *") == 0


def test_the_pointer_on_a_row_lights_its_point_and_a_click_pins_it(page):
    one = page(COUNTED)
    one.move(*one.center('#measurements tr[data-i="7"] td:nth-child(3)'))
    assert one.run("document.querySelector('.point.lit').dataset.i") == "7"
    choose(one, '#measurements tr[data-i="7"] th button')
    assert one.run("document.querySelector('.point.pinned').dataset.i") == "7"
    assert one.run("document.activeElement.dataset.i") == "7"


def test_filters_search_and_levels_choose_points_and_rows(page):
    one = page(CPU, COUNTED)
    rows = record(CPU)["measurements"] + record(COUNTED)["measurements"]
    assert shown(one) == len(rows)
    choose(one, 'fieldset[data-facet="precision"] input[value="f16"]')
    left = sum(row["dtype"] != "f16" for row in rows)
    assert shown(one) == left == one.count(".point")
    assert one.count(".mark.c-f16") == one.count(".swatch .mark.c-f16")
    choose(one, 'fieldset[data-facet="source"] input[value="analytic"]')
    left = sum(row["dtype"] != "f16" and row["Q"]["dram"]["source"] != "analytic" for row in rows)
    assert shown(one) == left == one.count("#measurements tbody tr")
    choose(one, 'fieldset[data-facet="source"] input[value="analytic"]')
    one.run("document.querySelector('input[type=search]').focus()")
    one.type("vgg_b16")
    assert shown(one) == sum(row["dtype"] != "f16" and "vgg_b16" in row["name"] for row in rows)
    one.run("(() => { const s = document.querySelector('select'); s.value = 'l2'; s.dispatchEvent(new Event('change')); })()")
    one.settle()
    counted = sum(row["dtype"] != "f16" and "vgg_b16" in row["name"] and "l2" in row["Q"] for row in rows)
    assert one.count(".point") == counted > 0
    assert "FLOP/byte (L2)" in one.text(".figure")


def test_roofs_can_be_hidden_and_the_axes_follow(page):
    one = page(COUNTED)
    before = place(one, 0)
    for roof in ("wgmma bf16", "wgmma f16", "wgmma tf32"):
        choose(one, f'input[aria-label="roof {roof}"]')
    for precision in ("bf16", "f16"):
        choose(one, f'fieldset[data-facet="precision"] input[value="{precision}"]')
    assert one.run("[...document.querySelectorAll('.roof')].map((r) => r.dataset.roof)").count("wgmma f16") == 0
    assert place(one, 0)[1] < before[1] - 50


def test_each_point_stands_under_roofs_of_its_own_place(page):
    one = page(CPU, GPU)
    data = json.loads(one.text("#data"))
    assert [group["kind"] for group in data["groups"]] == ["cpu", "cpu", "gpu"]
    panels = one.run("""[...document.querySelectorAll('.panel')].map((p) => ({
        points: [...p.querySelectorAll('.point')].map((m) => +m.dataset.i),
        roofs: [...p.querySelectorAll('.roof')].map((r) => r.dataset.roof)}))""")
    for group, panel in enumerate(panels):
        assert panel["points"] and all(data["points"][i]["group"] == group for i in panel["points"])
        own = {roof["name"] for roof in data["groups"][group]["roofs"]}
        assert panel["roofs"] and own.issuperset(panel["roofs"])


def test_roofs_of_three_machines_are_named_whole_and_modes_are_said_once(page):
    one = page(*(RESULTS / machine / "study-quick.json" for machine in ("epyc-zen4-2c", "emr-16c", "h200")))
    names = one.run("[...document.querySelectorAll('.panel')].map((p) => [...p.querySelectorAll('text')].map((t) => t.textContent))")
    assert len(names) == 3
    for panel in names:
        assert any(name.startswith("DRAM") for name in panel)
        assert [name for name in panel if "\u2026" in name] == []
    assert one.text("header").count("batches halved") == 1
    assert "A, B, C: quick" in one.text("header")


def test_the_card_hides_no_point_beside_its_own(page):
    one = page(CPU, GPU)
    hover(one, 3)
    sides = "(() => {{ const box = document.querySelector('{}'){}.getBoundingClientRect(); return [box.left, box.right]; }})()"
    card = one.run(sides.format(".card", ""))
    plot = one.run(sides.format(mark(3), ".closest('.panel').querySelector('.frame')"))
    assert card[0] >= plot[1] or card[1] <= plot[0]


def test_one_layer_on_two_machines_is_joined_by_the_factor_of_their_times(page):
    one = page(CPU, GPU, fragment="overlay=1")
    points = json.loads(one.text("#data"))["points"]
    groups_of = {}
    for point in points:
        if point["precision"] == "f32":
            groups_of.setdefault(point["layer"], set()).add(point["group"])
    layer = next(layer for layer, groups in groups_of.items() if groups == {0, 1, 2})
    best = {}
    for point in points:
        if point["layer"] == layer and point["precision"] == "f32":
            best[point["group"]] = min(best.get(point["group"], math.inf), point["seconds"])
    index = next(i for i, p in enumerate(points) if p["seconds"] == best[0])
    hover(one, index)
    factor = best[0] / best[2]
    assert one.count(".panel") == 1
    factors = one.run("[...document.querySelectorAll('.hover .join text')].map((t) => parseFloat(t.textContent))")
    assert max(factors) == pytest.approx(factor, abs=0.51)
    assert one.count(".point.lit") == 3


def test_kernels_of_a_layer_are_steps(page):
    one = page(RESULTS / "h100" / "ladder-f32.json", fragment="steps=1&names=0")
    assert "no ceilings were measured" in one.text("h1") and one.count(".roof") == 0
    rows = record(RESULTS / "h100" / "ladder-f32.json")["measurements"]
    layers = {}
    for row in rows:
        key = (row["problem"], bool(row["epilogue"]["max_pool"]))
        layers.setdefault(key, set()).add((row["kernel"], row["math"]))
    assert one.count(".join.step") == sum(len(kernels) - 1 for kernels in layers.values())


def test_a_kernel_on_one_of_two_threads_stands_under_one_thread_s_roofs_and_is_a_step_to_the_others(page):
    study = record(CPU)
    rows = [copy.deepcopy(next(row for row in study["measurements"] if row["device"] == "cpu")) for _ in range(2)]
    rows[1] |= {"kernel": "other", "used_threads": 1}
    rows[1]["T"] |= {name: 2 * rows[1]["T"][name] for name in ("seconds", "q1", "q3", "fastest")}
    rows[1]["gflops"] /= 2
    study["measurements"] = rows
    one = page(study, fragment="steps=1&names=0")
    groups = json.loads(one.text("#data"))["groups"]
    assert [group["title"].split(" · ")[-1] for group in groups] == ["2 threads", "1 of 2 threads"]
    flat = [max(roof["value"] for roof in group["roofs"] if not roof["bandwidth"]) for group in groups]
    assert flat[1] < 0.75 * flat[0]
    assert one.count(".join.step") == 1
    hover(one, 1)
    assert "1 of 2 threads" in one.text(".card")


def test_themes_follow_the_system_and_the_button_and_text_has_contrast(page):
    one = page(CPU, COUNTED)

    def background():
        return one.run("getComputedStyle(document.documentElement).backgroundColor")

    contrasts = """(() => {
      const light = (text) => { const c = text.match(/[\\d.]+/g).slice(0, 3).map((v) => v / 255)
        .map((v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * c[0] + 0.7152 * c[1] + 0.0722 * c[2]; };
      const page = light(getComputedStyle(document.documentElement).backgroundColor);
      const ratio = (colour) => { const own = light(colour); return (Math.max(own, page) + 0.05) / (Math.min(own, page) + 0.05); };
      const worst = (selector, property) => Math.min(...[...document.querySelectorAll(selector)].map((e) => ratio(getComputedStyle(e)[property])));
      return [worst('.figure text', 'fill'), worst('p, h1, h2, td, th, label, legend, dt, dd', 'color'), worst('.roof:not(.thin)', 'stroke'),
        Math.min(...[...document.querySelectorAll('.figure text')].map((t) => parseFloat(getComputedStyle(t).fontSize)))];
    })()"""
    for scheme in ("light", "dark"):
        one.scheme(scheme)
        figure, text, roofs, size = one.run(contrasts)
        assert figure >= 4.5 and text >= 4.5 and roofs >= 3 and size >= 11
    dark = background()
    choose(one, "button.theme")
    assert background() != dark and "theme=light" in eventually(one, "location.hash", lambda h: "theme" in h)


def test_the_keyboard_reaches_moves_pins_and_closes(page):
    one = page(COUNTED)
    one.key("Tab")
    assert one.run("document.activeElement.textContent") == "Skip to the figure"
    one.key("Enter")
    first = one.run("document.activeElement.dataset.i")
    assert first is not None and not one.run("document.querySelector('.card').hidden")
    seen = {first}
    for key in ("ArrowRight", "ArrowRight", "ArrowUp", "ArrowLeft", "ArrowDown"):
        one.key(key)
        seen.add(one.run("document.activeElement.dataset.i"))
    assert len(seen) >= 4 and None not in seen
    one.key("Enter")
    assert one.count(".point.pinned") == 1
    one.key("Escape")
    assert one.count(".point.pinned") == 0 and one.run("document.querySelector('.card').hidden")
    assert one.count('.point[tabindex="0"]') == 1


def test_a_link_brings_the_same_view_back_after_a_reload(page):
    one = page(CPU, COUNTED)
    choose(one, 'fieldset[data-facet="precision"] input[value="bf16"]')
    choose(one, "input[name=sized]")
    choose(one, 'input[aria-label="roof wgmma tf32"]')
    one.run("(() => { const s = document.querySelector('select'); s.value = 'bound'; s.dispatchEvent(new Event('change')); })()")
    choose(one, 'button[aria-label="zoom in"]')
    index = one.run("[...document.querySelectorAll('.point')].at(-1).dataset.i")
    one.click(*one.center(mark(index)))
    pinned = one.run("document.querySelector('.point.pinned').dataset.i")
    eventually(one, "location.hash", lambda h: f"point={pinned}" in h and "view=" in h)

    def view():
        return one.run("""[document.querySelector('.shown').textContent, document.querySelector('select').value,
            document.querySelector('.point.pinned')?.dataset.i, document.querySelector('.card').hidden,
            document.querySelectorAll('.roof').length, document.querySelector('input[name=sized]').checked,
            [...document.querySelectorAll('.figure .soft.mid')].map((t) => t.textContent).join()]""")

    before = view()
    one.reload()
    one.settle()
    assert view() == before and before[3] is False
    one.open(one.folder / "index.html", "view=x,1,2&hide=nonsense&level=l9&point=12345&roofs&noroof=x&nogroup=99&theme=pink")
    assert shown(one) == len(record(CPU)["measurements"]) + len(record(COUNTED)["measurements"])


def test_zoom_pan_and_reset(page):
    one = page(COUNTED)
    before = place(one, 0)
    x, y = one.center(mark(0))
    one.wheel(x, y, -100)
    assert place(one, 0) == pytest.approx(before, abs=2)  # what is under the pointer stays there
    one.drag(x + 40, y + 40, x + 140, y + 10)
    assert place(one, 0) == pytest.approx((before[0] + 100, before[1] - 30), abs=3)
    one.wheel(x, y, -100, ctrl=False)
    assert place(one, 0) == pytest.approx((before[0] + 100, before[1] - 30), abs=3)  # a plain wheel scrolls the page
    choose(one, "button[name=reset]")
    assert place(one, 0) == pytest.approx(before, abs=0.5)


# The elements that a filter puts into the page, with all that is inside them.
FILTERED = """(() => { const seen = new MutationObserver(() => {}), i = document.querySelector('input[type=search]');
    seen.observe(document, { childList: true, subtree: true });
    i.value = WORD; i.dispatchEvent(new Event('input'));
    let made = 0;
    for (const change of seen.takeRecords())
      for (const node of change.addedNodes) made += 1 + (node.querySelectorAll ? node.querySelectorAll("*").length : 0);
    return made; })()"""


def test_a_thousand_points_are_filtered_without_making_the_rows_out_of_sight(page):
    """How fast that is, bench/page_speed.py says."""
    one = page(many_rows(1000))
    assert one.count(".point") == 1000
    in_sight = one.count("#measurements tbody tr")
    assert in_sight <= 100
    a_row = one.run("document.querySelector('#measurements tbody tr[data-i]').querySelectorAll('*').length + 1")
    for word, left in (("layer1", 111), ("", 1000), ("layer22", 11), ("", 1000), ("layer9", 111)):
        made = one.run(FILTERED.replace("WORD", json.dumps(word)))
        one.settle()
        assert shown(one) == left
        assert made <= 1000 * a_row / 2, word  # cells of rows that are not in sight would be twice that


def test_points_in_one_spot_can_each_be_reached(page):
    one = page(many_rows(60, spot=True))
    one.click(*one.center(mark(3)))
    places = [place(one, index) for index in range(60)]
    assert min(math.dist(a, b) for i, a in enumerate(places) for b in places[:i]) > 6
    hover(one, 41)
    assert "layer41" in one.text(".card")
    one.key("Escape")
    assert len({place(one, index) for index in range(60)}) == 1


def test_small_screens_scroll_down_only(page):
    one = page(CPU, GPU)
    for width, phone in ((900, False), (420, True)):
        one.resize(width, 900, phone)
        one.settle()
        assert eventually(one, "document.documentElement.scrollWidth", lambda wide: wide <= width) <= width  # drawn anew
        one.settle()
        assert one.run("Math.max(...[...document.querySelectorAll('.figure text')].map((t) => t.getBoundingClientRect().right))") <= width + 1
        assert one.run("Math.min(...[...document.querySelectorAll('.figure text')].map((t) => parseFloat(getComputedStyle(t).fontSize)))") >= 11


@pytest.mark.parametrize("rows, words", [(1, "1 row has no FLOP: the table has its GB/s"), (2, "2 rows have no FLOP: the table has their GB/s")])
def test_rows_without_flop_are_counted_below_the_figure(page, rows, words):
    study = record(RESULTS / "epyc-zen4-2c" / "own-loops.json")
    for row in study["measurements"][:rows]:
        row["W"]["flop"] = row["W"]["analytic"] = row["intensity"] = row["gflops"] = 0
    assert words in page(study).text("p.note")


def test_long_words_of_a_program_are_broken(page):
    study = record(RESULTS / "h200" / "mixed.json")
    word = "x" * 2000
    study["program"]["notes"] = [word]
    study["program"]["command"] = word
    study["program"]["findings"] = [{"name": "latency", "evidence": word, "advice": [word]}]
    one = page(study)
    assert one.run("document.documentElement.scrollWidth") <= 1400


def test_the_card_of_a_phone_does_not_cover_its_point_and_scrolls_where_it_is_too_high(page):
    one = page(COUNTED)
    one.resize(420, 600, phone=True)
    one.settle()
    for index in range(3):
        x, y = one.center(mark(index))
        one.click(x, y)
        left, top, right, bottom = one.run("(() => { const r = document.querySelector('.card').getBoundingClientRect(); return [r.left, r.top, r.right, r.bottom]; })()")
        assert top >= 0 and bottom <= 600 and left >= 0 and right <= 420
        assert not top <= y <= bottom
        if one.run("(() => { const c = document.querySelector('.card'); return c.scrollHeight > c.clientHeight + 1; })()"):
            assert one.run("getComputedStyle(document.querySelector('.card')).overflowY") == "auto"
        one.key("Escape")


def test_the_view_is_saved_as_svg_png_and_csv(page, tmp_path):
    one = page(COUNTED)
    choose(one, 'fieldset[data-facet="precision"] input[value="f32"]')
    one.call("Page.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    for name in ("svg", "png", "csv"):
        choose(one, f"button[name={name}]")
    until = time.monotonic() + 300
    while len([f for f in tmp_path.iterdir() if f.suffix in (".svg", ".png", ".csv")]) < 3 and time.monotonic() < until:
        time.sleep(0.05)
    rows = [row for row in record(COUNTED)["measurements"] if row["dtype"] != "f32"]
    text = (tmp_path / "view.svg").read_text()
    ElementTree.fromstring(text)
    assert "class=" not in text and "var(" not in text and "Measured roofline" in text
    assert all(f">{row['device']}<" in text for row in rows) and ">counter Q<" in text  # the legend
    assert (tmp_path / "view.png").read_bytes().startswith(b"\x89PNG\r\n")
    table = list(csv.DictReader(io.StringIO((tmp_path / "view.csv").read_text())))
    assert [float(line["seconds"]) for line in table] == [row["T"]["seconds"] for row in rows]


def test_paper_has_the_figure_with_a_legend_in_light_colours_and_all_rows(page):
    one = page(CPU, GPU)
    one.run("document.documentElement.dataset.theme = 'dark'")
    legend = "getComputedStyle(document.querySelector('.figure .legend')).display"
    on_screen = one.run("document.querySelector('.figure').viewBox.baseVal.height")
    assert one.run(legend) == "none"
    one.call("Emulation.setEmulatedMedia", media="print")
    one.run("dispatchEvent(new Event('beforeprint'))")
    words = one.run("document.querySelector('.figure .legend').textContent")
    assert one.run(legend) == "inline" and all(word in words for word in ("onednn", "cuda:0", "bf16", "analytic Q"))
    assert one.run("document.querySelector('.figure').viewBox.baseVal.width") == 980
    assert one.run("getComputedStyle(document.documentElement).backgroundColor") == "rgb(255, 255, 255)"
    assert one.run("getComputedStyle(document.querySelector('.controls')).display") == "none"
    rows = len(record(CPU)["measurements"]) + len(record(GPU)["measurements"])
    assert one.run("document.querySelectorAll('#measurements tbody tr').length") == rows
    one.call("Emulation.setEmulatedMedia", media="")
    one.run("dispatchEvent(new Event('afterprint'))")
    assert one.run(legend) == "none"
    assert one.run("document.querySelector('.figure').viewBox.baseVal.height") == on_screen


def test_a_hostile_study_is_text(page):
    study = record(CPU)
    hostile = "</script><img src=x onerror=window.hacked=1><script>window.hacked=1</script>\"'"
    for row in study["measurements"]:
        row |= {key: hostile for key in ("name", "suite", "device", "device_name", "kernel", "roof")} | {"flags": [hostile]}
    study["ceilings"][0]["name"] = study["machine"]["cpu"] = hostile
    one = page(study)
    hover(one, 0)
    assert hostile in one.text(".card")
    assert one.run("window.hacked") is None and one.count("img") == 0


def test_without_a_script_the_page_is_a_figure_with_tables(page):
    one = page(COUNTED)
    one.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        one.reload()
        document = one.call("DOM.getDocument")["root"]["nodeId"]

        def count(selector):
            return len(one.call("DOM.querySelectorAll", nodeId=document, selector=selector)["nodeIds"])

        assert count("noscript svg .mark") >= 44
        assert count("#measurements tbody tr") == 44
    finally:
        one.call("Emulation.setScriptExecutionDisabled", value=False)
