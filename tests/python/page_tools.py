"""Opening the report's page in a browser, and what its tests read from it."""

import json
import os
import re
import subprocess
import time
from pathlib import Path

import browser
import pytest

GABLE = os.environ.get("GABLE_COMMAND")
RESULTS = Path(__file__).resolve().parents[2] / "bench" / "results"
COUNTED = RESULTS / "h100" / "study-counters.json"
GPU = RESULTS / "h100" / "study-quick.json"
CPU = RESULTS / "epyc-zen5-2c" / "study-quick.json"

if not GABLE:
    pytest.skip("GABLE_COMMAND is not set: CMake's test sets it", allow_module_level=True)
if not browser.program():
    pytest.skip("chromium is not installed: the page is not tested in a browser", allow_module_level=True)


@pytest.fixture(scope="module")
def chromium():
    one = browser.Browser()
    yield one
    one.close()


@pytest.fixture
def page(chromium, tmp_path_factory):
    """Opens the page of studies; at the end, no script has failed and nothing was asked of a network."""
    chromium.resize(1400, 1000)
    chromium.scheme("light")

    def open_page(*studies, fragment=""):
        chromium.folder = plot(tmp_path_factory, studies)
        chromium.open(chromium.folder / "index.html", fragment)
        chromium.settle()
        return chromium

    yield open_page
    assert chromium.errors == []
    requests = [e["params"]["request"]["url"] for e in chromium.events if e["method"] == "Network.requestWillBeSent"]
    assert all(url.startswith(("file:", "data:", "blob:")) for url in requests)


_plotted = {}


def plot(factory, studies):
    """A folder with the report of studies, which are paths or records."""
    key = json.dumps([str(s) if isinstance(s, Path) else s for s in studies], sort_keys=True)
    if key not in _plotted:
        folder = factory.mktemp("page")
        files = []
        for number, study in enumerate(studies):
            files.append(study if isinstance(study, Path) else folder / f"{number}.json")
            if not isinstance(study, Path):
                files[-1].write_text(json.dumps(study))
        done = subprocess.run([GABLE, "plot", *files, "--out", folder / "out"], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        _plotted[key] = folder / "out"
    return _plotted[key]


def record(path):
    return json.loads(path.read_text())


def shown(one):
    return int(one.text(".shown").split()[0])


def mark(index):
    return f'.point[data-i="{index}"]'


def hover(one, index):
    one.move(*one.center(mark(index)))


def place(one, index):
    text = one.run(f"document.querySelector('{mark(index)}').getAttribute('transform')")
    return tuple(float(number) for number in re.findall(r"-?[\d.]+", text))


def choose(one, selector):
    one.run(f"document.querySelector({json.dumps(selector)}).click()")
    one.settle()


def tick_value(text):
    """Of an axis' text, "500G"; None for any other text."""
    found = re.fullmatch(r"([\d.]+)([kMGTP]?)", text)
    return found and float(found[1]) * 1000 ** " kMGTP".index(found[2] or " ")


def eventually(one, script, is_right):
    until = time.monotonic() + 300
    while not is_right(value := one.run(script)) and time.monotonic() < until:
        time.sleep(0.05)
    return value
