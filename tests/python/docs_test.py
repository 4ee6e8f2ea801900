"""The documents of the repository: links lead somewhere, and no merge is left half done."""

import pathlib
import re

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


def test_a_link_to_nowhere_is_found(tmp_path):
    (tmp_path / "other.md").write_text("# The first, of two\n")
    document = tmp_path / "here.md"
    document.write_text("[a](other.md#the-first-of-two) [b](none.md) [c](other.md#third) [d](https://example.org/x)\n")
    assert broken_links(document) == ["none.md", "other.md#third"]
