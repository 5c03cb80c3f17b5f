"""Fixtures that several test modules share: a real browser, and a page that is watched."""

import gc
import os
import shutil
import signal
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from hypothesis import HealthCheck, settings

from helpers.examples import ALL

if not ALL:  # before numpy is imported: threads of products wait busily, and tests in several processes fill the cores;
    # so last bits that depend on the number of threads are seen with EXAMPLES=all only, which has all threads
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from helpers.archive_server import server  # noqa: F401

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in the background of a shell: tests send Ctrl-C to commands
    signal.signal(signal.SIGINT, signal.default_int_handler)

# How fast an example is drawn or run says something about the machine, not about the package.
settings.register_profile("eesvm", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("eesvm")


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """What modules of tests load stays to the end: the garbage collector need not go through it again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(20_000, 20, 50)
        gc.enable()


def pytest_collection_modifyitems(config, items):
    """Leave out what takes long, unless everything is asked for."""
    if not ALL:
        long = [item for item in items if item.get_closest_marker("long")]
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if item not in set(long)]


def _visible_in_root():
    """Names in the root of the repository; hidden ones are caches of tools."""
    return {path.name for path in Path(__file__).resolve().parents[1].iterdir() if not path.name.startswith(".")}


@pytest.fixture(scope="session", autouse=True)
def _root_stays_clean():
    """No test leaves a file in the root of the repository."""
    before = _visible_in_root()
    yield
    assert _visible_in_root() <= before, "a test has left something in the root of the repository"


CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.fixture(scope="session")
def browser():
    """A headless Chromium; skips where there is none."""
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine: install it, or set CHROMIUM to its path")
    sync_api = pytest.importorskip("playwright.sync_api", reason="the browser is driven by playwright")
    with sync_api.sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield launched
        launched.close()


@pytest.fixture
def open_page(browser):
    """Opens pages; the test fails if one of them complains on its console or asks for anything from outside.

    `open_page(width=1200, height=900, **options of the browser context)` gives a page of playwright. What it said is in
    `page.complaints`; a test that provokes a complaint on purpose takes it out of there.
    """
    contexts, complaints = [], []

    def open_page(width=1200, height=900, **options):
        context = browser.new_context(viewport={"width": width, "height": height}, **options)
        contexts.append(context)
        context.set_default_timeout(20_000)
        page = context.new_page()
        page.complaints = complaints
        page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: complaints.append(request.url) if _is_outside(request.url) else None)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not complaints


def _is_outside(url):
    parts = urlsplit(url)
    return parts.scheme in ("http", "https", "ws", "wss") and parts.hostname not in ("127.0.0.1", "localhost", "::1")
