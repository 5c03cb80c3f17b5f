"""The documentation: what it shows runs, what it names exists, and the site builds without a warning and by itself."""

import doctest
import fnmatch
import importlib
import inspect
import os
import re
import runpy
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

import eesvm
from eesvm.cli.parsers import VERBS
from helpers.documented import REFERENCE, documented

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
GENERATED = ("_build", "gallery", "measurements")
WRITTEN = sorted(page for page in DOCS.glob("**/*.md") if page.relative_to(DOCS).parts[0] not in GENERATED)
PAGES = [ROOT / "README.md", *WRITTEN]
EXAMPLES = sorted((DOCS / "examples").glob("*.py"))
SLOW_EXAMPLES = {  # searches that are given some seconds, and those that look at images
    *("plot_02_gap_over_time", "plot_03_recall_frontier", "plot_05_comparing_calibrators"),
    *("plot_09_windows", "plot_10_detector", "plot_11_carrying_a_mask_over"),
}
LONG_EXAMPLES = {"plot_12_own_features"}  # it trains an ensemble


def marks_of(example):
    if example.stem in SLOW_EXAMPLES:
        return pytest.mark.slow
    return pytest.mark.long if example.stem in LONG_EXAMPLES else ()


def name_of(path):
    return str(path.relative_to(DOCS)) if path.is_relative_to(DOCS) else path.name


@pytest.mark.parametrize("page", [p for p in PAGES if ">>>" in p.read_text()], ids=name_of)
@pytest.mark.long
def test_code_on_pages_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    failures, attempts = doctest.testfile(str(page), module_relative=False, optionflags=doctest.ELLIPSIS)
    assert attempts > 0
    assert failures == 0


@pytest.mark.parametrize(
    "example",
    [pytest.param(example, marks=marks_of(example)) for example in EXAMPLES],
    ids=lambda e: e.stem,
)
def test_examples_run_and_draw(example, tmp_path, monkeypatch):
    import matplotlib.pyplot as plt

    monkeypatch.chdir(tmp_path)
    plt.switch_backend("Agg")
    plt.close("all")
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="FigureCanvasAgg is non-interactive")
            runpy.run_path(str(example), run_name="__main__")
        assert plt.get_fignums()
        for number in plt.get_fignums():
            plt.figure(number).savefig(tmp_path / f"{number}.png")
    finally:
        plt.close("all")
    assert {file.suffix for file in tmp_path.iterdir()} == {".png"}, "an example leaves nothing behind"


def test_slow_examples_exist():
    assert {example.stem for example in EXAMPLES} >= SLOW_EXAMPLES


@pytest.mark.parametrize("page", [*PAGES, *EXAMPLES], ids=name_of)
def test_links_lead_somewhere(page):
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]+))?\)", page.read_text()):
        if "://" in target:
            continue
        file = page if not target else page.parent / target
        assert file.exists(), f"{page.name} links to {target}"
        if anchor:
            assert anchor in anchors(file), f"{page.name} links to {target}#{anchor}"


def anchors(page):
    """The anchors of headings, as GitHub makes them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    titles = re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_every_page_is_in_the_table_of_contents():
    index = (DOCS / "index.md").read_text()
    entries = [
        line.strip()
        for block in re.findall(r"```\{toctree\}\n(.*?)```", index, re.DOTALL)
        for line in block.split("\n")
    ]
    listed = re.findall(
        r"^   (\w[\w-]*)$", (DOCS / "api" / "index.rst").read_text().split(".. toctree::")[1], re.MULTILINE
    )
    entries += [f"api/{name}" for name in listed]
    pages = [page for page in [*PAGES, *REFERENCE] if page.is_relative_to(DOCS) and page != DOCS / "index.md"]
    for page in pages:
        name = str(page.relative_to(DOCS).with_suffix(""))
        assert any(fnmatch.fnmatch(name, entry) for entry in entries if entry), f"{name} is in no table of contents"
    for entry in entries:
        if entry and entry[0] != ":" and "*" not in entry and not entry.startswith(GENERATED):
            assert any(page.relative_to(DOCS).with_suffix("") == Path(entry) for page in pages), f"there is no {entry}"


def test_every_public_name_is_in_the_reference():
    names, modules = documented()
    for name in eesvm.__all__:
        if name != "__version__":
            assert f"eesvm.{name}" in names | modules, f"eesvm.{name} is not in the reference"


def test_every_documented_name_exists():
    for name in documented()[0]:
        module, _, attribute = name.rpartition(".")
        assert hasattr(importlib.import_module(module), attribute), name


@pytest.mark.parametrize("page", [*PAGES, *EXAMPLES], ids=name_of)
def test_what_a_page_imports_is_in_the_reference(page):
    names, modules = documented()
    text = re.sub(r"^\.\.\. ", "", page.read_text(), flags=re.MULTILINE)
    for module, several, single in re.findall(r"from (eesvm[\w.]*) import (?:\(([^)]*)\)|([^\n#(]+))", text):
        if module == "eesvm.cli":  # the command line has a page of its own
            continue
        for name in (several or single).split(","):
            name = name.strip()
            if name:
                assert f"{module}.{name}" in names | modules, f"{page.name} uses {module}.{name}"


def extension(name, monkeypatch):
    for needed in ("sphinx", "math_core", "ziamath"):
        pytest.importorskip(needed, reason="the documentation has an extra of its own: pip install 'eesvm[docs]'")
    monkeypatch.syspath_prepend(DOCS / "_ext")
    return importlib.import_module(name)


@pytest.mark.long
def test_every_verb_is_on_the_page_of_the_command_line(monkeypatch):
    helps = extension("command_line", monkeypatch).verbs_with_help()
    printed = subprocess.run(
        [sys.executable, "-m", "eesvm", "--help"],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"COLUMNS": "200"},
    ).stdout
    verbs = re.findall(r"^    (\w+) ", printed, re.MULTILINE)
    assert len(verbs) >= 11
    assert {f"eesvm {verb}" for verb in verbs} <= set(helps)
    assert {"eesvm data info", "eesvm data fetch", "eesvm cache info", "eesvm cache clear"} <= set(helps)
    assert all("usage: " in text and "--help" in text for text in helps.values())
    assert "```{command-line-help}" in (DOCS / "command-line.md").read_text()


def test_every_formula_can_be_converted(monkeypatch):
    to_mathml = extension("mathml", monkeypatch).to_mathml
    formulas = [
        f for page in PAGES for f in re.findall(r"^```math\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    ]
    assert len(formulas) >= 9
    for formula in formulas:
        assert to_mathml(formula, is_block=True).startswith('<math display="block"')
    with pytest.raises(Exception, match="nonsense"):
        to_mathml(r"\nonsense{x}")


def test_docstrings_become_restructured_text(monkeypatch):
    converted = extension("docstrings", monkeypatch).as_restructured_text(
        "The `solve` of |w|, see `a b`.\n\n    x = y*z\n\nParameters\n----------\nn_jobs, gap : of coef_\n    and `S`.\n\nThe end."
    )
    assert converted == (
        "The :py:obj:`solve <eesvm.solve>` of \\|w\\|, see ``a b``.\n\n::\n\n    x = y*z\n\nThe end.\n\n"
        "Parameters\n----------\nn_jobs, gap\n    of coef\\_\n    and :py:obj:`S <S>`.\n"
    )


def test_what_a_function_returns_and_raises_comes_after_its_parameters(monkeypatch):
    converted = extension("docstrings", monkeypatch).as_restructured_text(
        "Does.\n\nParameters\n----------\na : of |b|.\n\nReturns\n-------\nndarray : (n,) of x_.\n    Twice.\n\n"
        "Raises\n------\nInputError : no `a`.\n\nThe end."
    )
    assert converted == (
        "Does.\n\nThe end.\n\nParameters\n----------\na\n    of \\|b\\|.\n\n\n"
        "Returns\n-------\nndarray\n    (n,) of x\\_.\n    Twice.\n\n\n"
        "Raises\n------\nInputError\n    no :py:obj:`a <a>`.\n"
    )


def test_what_is_in_the_reference_has_a_docstring():
    for name in documented()[0]:
        module, _, attribute = name.rpartition(".")
        item = getattr(importlib.import_module(module), attribute)
        if inspect.isfunction(item) or inspect.isclass(item):
            assert (inspect.getdoc(item) or "").strip(), f"{name} has no docstring"
        for member, value in vars(item).items() if inspect.isclass(item) else ():
            is_method = inspect.isfunction(value) or isinstance(value, property | classmethod | staticmethod)
            if is_method and member[0] != "_":
                assert (inspect.getdoc(getattr(item, member)) or "").strip(), f"{name}.{member} has no docstring"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The built site; examples that have not changed since the last build are not run again."""
    for needed in ("sphinx", "myst_parser", "furo", "sphinx_gallery", "math_core", "ziamath"):
        pytest.importorskip(needed, reason="the documentation has an extra of its own: pip install 'eesvm[docs]'")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", str(DOCS), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return folder


@pytest.mark.slow
def test_site_needs_nothing_from_outside(site):
    for page in site.glob("**/*.html"):
        tags = re.findall(r"<(?:script|link|img|iframe|source)\b[^>]*>", page.read_text())
        assert not [tag for tag in tags if re.search(r"""(?:src|href)=["'](?:https?:)?//""", tag)], page.name
    for sheet in site.glob("**/*.css"):
        assert not re.search(r"url\(['\"]?(?:https?:)?//|@import", sheet.read_text()), sheet.name


@pytest.mark.slow
def test_site_has_every_public_name_and_verb(site):
    inventory = importlib.import_module("sphinx.util.inventory").InventoryFile.loads(
        (site / "objects.inv").read_bytes(), uri=""
    )
    there = {name for kind, names in inventory.data.items() if kind.startswith("py:") for name in names}
    assert {f"eesvm.{name}" for name in eesvm.__all__ if name != "__version__"} <= there
    page = (site / "command-line.html").read_text()
    for module in VERBS:
        assert f'id="eesvm-{module.__name__.rpartition(".")[2]}"' in page


@pytest.mark.slow
@pytest.mark.parametrize("width", [1300, 390])
@pytest.mark.parametrize(
    "page",
    ["index", "maths", "gallery/index", "gallery/plot_01_alert_rules", "api/index", "api/calibration", "command-line"],
)
def test_pages_show_in_a_browser(site, open_page, page, width):
    shown = open_page(width=width, height=900)
    shown.goto((site / f"{page}.html").as_uri())
    assert shown.locator("h1").count() == 1
    assert shown.evaluate("document.documentElement.scrollWidth") <= width, "wider than the window"
    broken = "[...document.images].filter(image => !image.complete || image.naturalWidth === 0).map(image => image.src)"
    assert shown.evaluate(broken) == []
    if page == "maths":
        assert shown.locator("math").count() > 100
        assert shown.evaluate("document.fonts.ready.then(() => document.fonts.check('16px Formulas'))")
        assert shown.locator("math").first.bounding_box()["width"] > 5
