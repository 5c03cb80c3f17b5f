"""Every Python example in the README and the docs runs, and prints what it says it prints."""

import doctest
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]


@pytest.mark.parametrize("page", [p for p in PAGES if ">>>" in p.read_text()], ids=lambda p: p.name)
def test_examples_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    failures, attempts = doctest.testfile(str(page), module_relative=False, optionflags=doctest.ELLIPSIS)
    assert attempts > 0
    assert failures == 0


def test_links_between_pages_lead_somewhere():
    import re

    for page in PAGES:
        for target in re.findall(r"\]\(([^)#\s]+)\)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name} links to {target}"
