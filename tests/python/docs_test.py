"""The documents of the repository: links lead somewhere, types and options that they name exist, and no merge is left half done."""

import functools
import json
import os
import pathlib
import re
import shlex
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PATTERNS = ("*.md", "docs/*.md", "bench/**/*.md", "examples/*.md")
DOCUMENTS = sorted(path for pattern in PATTERNS for path in ROOT.glob(pattern))
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+\s+(.*)$", re.MULTILINE)
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def anchors(text: str) -> set[str]:
    """What GitHub makes of headings: lower case, no punctuation, a hyphen for each space."""
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in HEADING.findall(FENCE.sub("", text)))
    return {heading.strip().replace(" ", "-") for heading in plain}


def broken_links(document: pathlib.Path) -> list[str]:
    broken = []
    for link in LINK.findall(FENCE.sub("", document.read_text())):
        if re.match(r"[a-z]+:", link):  # another site's
            continue
        path, _, anchor = link.partition("#")
        target = document.parent / path if path else document
        if not target.exists():
            broken.append(link)
        elif anchor and target.suffix == ".md" and anchor not in anchors(target.read_text()):
            broken.append(link)
    return broken


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document):
    assert broken_links(document) == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_conflict_of_a_merge_is_left(document):
    assert not re.search(r"^(<{7}|>{7}) |^={7}$", document.read_text(), re.MULTILINE)


def test_scripts_can_be_run_as_documents_say():
    scripts = [path for path in ROOT.glob("bench/**/*.py") if path.read_text().startswith("#!")]
    assert len(scripts) > 8
    assert [path.name for path in scripts if not os.access(path, os.X_OK)] == []


def test_a_link_to_nowhere_is_found(tmp_path):
    (tmp_path / "other.md").write_text("# The first, of two\n")
    document = tmp_path / "here.md"
    document.write_text("[a](other.md#the-first-of-two) [b](none.md) [c](other.md#third) [d](https://example.org/x)\n")
    assert broken_links(document) == ["none.md", "other.md#third"]


STEP = re.compile(r"^\| [^|]+ \| ([^|]*`[^|]+) \| ([^|]*`[^|]+) \| [^|]+ \|$", re.MULTILINE)


def files_of(places: str) -> list[pathlib.Path]:
    """The files of a cell of docs/layout.md. A name alone lies in the folder of the one before it."""
    files, folder = [], ROOT
    for place in re.findall(r"`([^`]+)`", places):
        candidates = [ROOT / "api/include" / place, ROOT / place, folder / place]
        found = next((path for path in candidates if path.exists()), None)
        assert found is not None, f"docs/layout.md: {place} is not there"
        folder = found.parent
        files += [path for path in found.iterdir() if path.is_file()] if found.is_dir() else [found]
    return files


def test_the_types_of_layout_are_where_it_says():
    steps = STEP.findall((ROOT / "docs/layout.md").read_text())
    assert len(steps) > 20
    missing = []
    for types, places in steps:
        code = "".join(path.read_text() for path in files_of(places))
        names = (re.split(r"\W", name, maxsplit=1)[0] for name in re.findall(r"`([^`]+)`", types))
        missing += [f"{name} in {places}" for name in names if not re.search(rf"\b{name}\b", code)]
    assert missing == []


def test_options_of_measure_are_described_in_the_order_that_designated_initialisers_need():
    text = (ROOT / "docs/measuring-your-code.md").read_text()
    table = re.search(r"^\| option \| \|\n\|---\|---\|\n((?:\| `\.[^\n]*\n)+)", text, re.MULTILINE).group(1)
    described = [name for line in table.splitlines() for name in re.findall(r"`\.(\w+)`", line.split("|")[1])]
    struct = re.search(r"struct MeasureOptions \{(.*?)\n\};", (ROOT / "api/include/gable/measure.h").read_text(), re.DOTALL)
    declared = re.findall(r"^  [\w:<>() ]+ (\w+)(?: = [^;]*|\{\});", struct.group(1), re.MULTILINE)
    assert described == declared


def said(picture: pathlib.Path) -> list[str]:
    """All words and numbers of a drawing: titles, points with their values, roofs, the legend."""
    return sorted(re.findall(r"<(?:title|text)[^>]*>([^<]*)<", picture.read_text()))


def drawings() -> list[tuple[str, str]]:
    """README's pictures of studies, each with the command below it that draws it."""
    text = (ROOT / "README.md").read_text()
    return re.findall(r"!\[[^\]]*\]\((docs/images/[^)]*\.svg)\)\s+```\n(?:./run )?(gable plot [^\n]*)\n```", text)


COMMAND = re.compile(r"\bgable (run conv2d|[a-z]+)((?:(?!`|\n| -- |#).)*)")  # up to what is the program's or a remark


@pytest.mark.skipif(not os.environ.get("GABLE_COMMAND"), reason="GABLE_COMMAND is not set: CMake's test sets it")
def test_commands_in_documents_have_the_options_that_they_use():
    @functools.cache
    def help_of(command: str) -> str:
        done = subprocess.run([os.environ["GABLE_COMMAND"], *command.split(), "--help"], capture_output=True, text=True)
        return done.stdout if done.returncode == 0 else ""

    used, unknown = 0, []
    for document in DOCUMENTS:
        for command, rest in COMMAND.findall(document.read_text()):
            options = re.findall(r"(?<![\w-])--[a-z][a-z-]*", rest)
            used += len(options)
            unknown += [f"{document.name}: gable {command} {o}" for o in options if not re.search(rf"{o}(?![\w-])", help_of(command))]
    assert used > 50
    assert unknown == []


@pytest.mark.skipif(not os.environ.get("GABLE_COMMAND"), reason="GABLE_COMMAND is not set: CMake's test sets it")
def test_every_kernel_of_this_machine_s_devices_is_described():
    done = subprocess.run([os.environ["GABLE_COMMAND"], "info", "--json", "-"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    kernels = {kernel for device in json.loads(done.stdout)["devices"] for kernel in device.get("kernels", [])}
    assert len(kernels) > 5
    text = (ROOT / "docs/devices.md").read_text()
    assert [kernel for kernel in sorted(kernels) if f"`{kernel}`" not in text] == []


@pytest.mark.skipif(not os.environ.get("GABLE_COMMAND"), reason="GABLE_COMMAND is not set: CMake's test sets it")
def test_the_numbers_of_the_readme_s_picture_are_those_of_its_records(tmp_path):
    assert drawings(), "README shows no picture with the command that draws it"
    for picture, command in drawings():
        words = shlex.split(command.partition(" --out")[0])
        files = [ROOT / word for word in words[2:]]
        done = subprocess.run([os.environ["GABLE_COMMAND"], "plot", *files, "--out", tmp_path], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert said(ROOT / picture) == said(tmp_path / "roofline.svg"), f"{picture} is not what `{command}` draws"
