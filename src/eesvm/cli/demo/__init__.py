"""`eesvm demo`: everything on what comes with the package, without a network.

In: nothing but a folder to write. Out: that folder, with a report to open in a browser.
"""

from __future__ import annotations

import argparse
from importlib import import_module

from eesvm._support.ahead import compiled_ahead
from eesvm._support.files import check_output_folder
from eesvm.cli.console import Screen


def run(arguments: argparse.Namespace) -> int:
    check_output_folder(arguments.output, arguments.overwrite)
    what = "scores" if arguments.scores else "scenes"
    kernel = import_module("eesvm.calibration.search.dive_kernels").dive  # one that both demos compile late
    with compiled_ahead(f"eesvm.cli.demo.rehearsal:{what}", kernel) as helper:
        # Imported here, as the helper need not wait for it; the other demo is not needed.
        job = import_module(f"eesvm.cli.demo.{what}")
        how = arguments.output, arguments.overwrite, Screen(arguments.quiet), arguments.quiet
        job.run(*how, helper) if arguments.scores else job.run(*how)
    return 0
