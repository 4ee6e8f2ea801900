"""The page's other axes: the energy roofline and the instruction roofline."""

import math

import pytest

from page_tools import (  # noqa: F401 (chromium is a fixture)
    COUNTED, CPU, GPU, chromium, eventually, hover, mark, page, place, record, tick_value,
)


def counted_with_energy():
    """The counted study with energy and instructions, as --energy and --counters give them."""
    study = record(COUNTED)
    for number, row in enumerate(study["measurements"]):
        row["energy"] = {"joules": row["T"]["seconds"] * 300, "by": "nvml", "watts": 300, "seconds": 1, "calls": 100, "updates": 20}
        warp = row["W"]["flop"] / 512
        sectors = row["Q"]["dram"]["bytes"] / 32
        row["instructions"] = {"warp": warp, "thread": warp * 32, "thread_active": warp * 16, "levels": {
            "l1": {"instructions": warp, "transactions": sectors * 4}, "dram": {"instructions": warp, "transactions": sectors},
            "global": {"instructions": warp / 8, "transactions": warp / 8 * [1, 4, 8, 32][number % 4]},
            "shared": {"instructions": warp / 4, "transactions": warp / 4}}}
    study["measurements"][0]["energy"] = {"joules": None, "reason": "the counter did not move"}
    for ceiling in study["ceilings"]:
        ceiling["per_joule"] = ceiling["value"] / 600
    return study


def show_axes(one, name, level=None):
    for select, value in [("axes", name)] + ([("level", level)] if level else []):
        one.run(f"(() => {{ const s = document.querySelector('select[name={select}]'); s.value = '{value}';"
                " s.dispatchEvent(new Event('change')); })()")
        one.settle()


def power_at(one, horizontal):
    """From a mark's pixel to its value, by the axis' own ticks."""
    ticks = one.run("""[...document.querySelectorAll('.figure g[aria-hidden] text')].map((t) =>
        [t.textContent, t.classList.contains('mid'), +t.getAttribute('x'), +t.getAttribute('y')])""")
    known = [(math.log10(tick_value(t)), x if horizontal else y - 4)
             for t, mid, x, y in ticks if mid == horizontal and tick_value(t)]
    (a, at_a), (b, at_b) = known[0], known[-1]
    return lambda at: 10 ** (a + (at - at_a) / (at_b - at_a) * (b - a))


def test_energy_has_axes_of_its_own_with_roofs_in_flop_a_joule(page):
    study = counted_with_energy()
    one = page(study, fragment="names=0")
    assert one.run("[...document.querySelectorAll('select[name=axes] option')].map((o) => o.value)") == ["time", "energy", "instructions"]
    show_axes(one, "energy")
    rows = study["measurements"]
    assert one.count(".point") == sum(row["W"]["flop"] > 0 for row in rows) - 1
    assert "FLOP a joule" in one.text(".figure") and "FLOP/J" in one.text(".figure")
    y_of = power_at(one, False)
    for index in (1, 5, 9):
        row = rows[index]
        assert y_of(place(one, index)[1]) == pytest.approx(row["W"]["flop"] / row["energy"]["joules"], rel=0.02)
    assert "1 row has no energy" in one.text(".note")
    hover(one, 1)
    assert "300 W, nvml, idle power included" in one.text(".card") and one.count(".hover .used") == 0
    # The address follows a little later.
    assert "axes=energy" in eventually(one, "location.hash", lambda address: "axes=energy" in address)


def test_the_instruction_roofline_has_issue_slots_walls_and_the_predication_gap(page):
    study = counted_with_energy()
    one = page(study, fragment="names=0&axes=instructions&level=l1")
    rows = study["measurements"]
    issue = next(rate["value"] for rate in study["rates"] if rate["unit"] == "instruction/s")
    assert f"issue slots · {float(f'{issue / 1e9:.3g}'):.0f} GIPS" in one.text(".figure")
    x_of, y_of = power_at(one, True), power_at(one, False)
    for index in (1, 5, 9):
        counts = rows[index]["instructions"]
        x, y = place(one, index)
        assert x_of(x) == pytest.approx(counts["warp"] / counts["levels"]["l1"]["transactions"], rel=0.02)
        assert y_of(y) == pytest.approx(counts["warp"] / rows[index]["T"]["seconds"], rel=0.02)
    bar = one.run(f"document.querySelector('{mark(5)} .bar').getAttribute('d')")
    length = float(bar.split("V")[1])
    y = place(one, 5)[1]
    assert y_of(y) / y_of(y + length) == pytest.approx(2, rel=0.03)  # half of the threads were predicated off
    assert one.count(".wall") == 0
    show_axes(one, "instructions", "global")
    assert one.count(".wall") == 4 and "a sector a thread" in one.text(".figure")
    x_of = power_at(one, True)
    walls = sorted(x_of(x) for x in one.run("[...document.querySelectorAll('.wall')].map((w) => +w.getAttribute('x1'))"))
    assert walls == pytest.approx([1 / 32, 1 / 8, 1 / 4, 1], rel=0.02)
    for index in (1, 2, 3):  # each stands on its wall
        assert x_of(place(one, index)[0]) == pytest.approx(1 / [1, 4, 8, 32][index % 4], rel=0.02)
    show_axes(one, "instructions", "shared")
    assert one.count(".wall") == 3 and "32-way" in one.text(".figure")
    show_axes(one, "time")
    assert "FLOP/byte (DRAM)" in one.text(".figure") and one.count(".wall") == 0


def test_machines_without_instructions_have_no_panel_in_the_instruction_roofline(page):
    one = page(CPU, counted_with_energy())
    panels = "[...document.querySelectorAll('.figure text')].filter((t) => t.textContent === '{}').length"
    assert one.run(panels.format("performance, FLOP/s")) == 2
    show_axes(one, "instructions")
    assert one.run(panels.format("warp instructions a second")) == 1


def test_the_headroom_of_every_point_is_inside_its_panel(page):
    one = page(GPU, COUNTED)
    rows = len(record(GPU)["measurements"]) + len(record(COUNTED)["measurements"])
    outside = []
    for index in range(0, rows, 15):
        if not one.count(mark(index)):
            continue
        hover(one, index)
        outside += one.run("""[...document.querySelectorAll('.figure .hover text')].filter((text) => {
            const box = text.getBoundingClientRect(), all = document.querySelector('.figure').getBoundingClientRect();
            return box.left < all.left || box.right > all.right;
        }).map((text) => text.textContent)""")
    assert outside == []


def test_a_study_without_energy_and_instructions_has_no_choice_of_axes(page):
    one = page(CPU, fragment="axes=energy")
    assert one.count("select[name=axes]") == 0
    assert "performance, FLOP/s" in one.text(".figure")
