"""`eesvm cache`: what is kept on disk, and how to be rid of it.

In: a folder, or nothing for the default one. Out: numbers of entries and bytes, or an emptier disk.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from eesvm._support.amounts import duration, file_size
from eesvm.cli.console import Screen
from eesvm.descriptors.cache import CacheInfo, DescriptorCache
from eesvm.descriptors.pretrained import converted_files, default_cache_folder


def run_info(arguments: argparse.Namespace) -> int:
    info = DescriptorCache(arguments.folder).info()
    networks = _networks(arguments.folder)
    if arguments.json:
        json.dump(_document(info, networks), sys.stdout, indent=2)
        sys.stdout.write("\n")
        return 0
    facts = [("folder", str(info.folder)), ("entries", f"{info.n_entries:,}"), ("size", file_size(info.n_bytes))]
    if info.first_use is not None and info.last_use is not None:
        facts += [("last used", _ago(info.last_use)), ("longest unused", _ago(info.first_use))]
    if networks:
        facts.append(("networks", ", ".join(f"{path.name} ({file_size(path.stat().st_size)})" for path in networks)))
    Screen().facts(facts)
    return 0


def run_clear(arguments: argparse.Namespace) -> int:
    cache = DescriptorCache(arguments.folder)
    removed = cache.clear()
    networks = _networks(arguments.folder)
    for path in networks:
        path.unlink(missing_ok=True)
    left = cache.info()
    screen = Screen(arguments.quiet)
    screen.say(f"removed {removed.n_entries - left.n_entries:,} entries, {file_size(removed.n_bytes - left.n_bytes)}")
    if networks:
        screen.say(f"removed {len(networks)} converted networks, which are made again when they are needed")
    return 0


def _networks(folder: str | None) -> list[Path]:
    """The converted networks, which belong to the default folder alone."""
    return [] if folder is not None else converted_files(default_cache_folder() / "backbones")


def _document(info: CacheInfo, networks: list[Path]) -> dict[str, Any]:
    return {
        "folder": str(info.folder),
        "n_entries": info.n_entries,
        "n_bytes": info.n_bytes,
        "first_use": info.first_use,
        "last_use": info.last_use,
        "networks": [str(path) for path in networks],
    }


def _ago(when: float) -> str:
    return f"{duration(max(0.0, time.time() - when))} ago"
