"""The command `eesvm`: thin verbs over the library.

In: arguments. Out: an exit status: 0; 1 with one line on the error stream where a file cannot be used; 2 for a wrong
call, which is also an option whose value can never be right; 130 when interrupted. Results go to the output stream,
progress and errors to the error stream.
Each verb reads, calls the library and writes. What it takes is in `parsers`; the module that does its work is imported
when it runs, so that a question for help, or a wrong call, is answered at once.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from eesvm._support.validation import InputError
from eesvm._support.version import __version__
from eesvm.cli.arguments import Parser, UsageError
from eesvm.cli.parsers import VERBS


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb; returns the exit status."""
    given = sys.argv[1:] if argv is None else argv
    arguments = _parser(given[0] if given else None).parse_args(argv)
    try:
        status = arguments.run(arguments)
        if sys.stdout is not None:  # it is None where the shell closed it
            sys.stdout.flush()
        return status
    except BrokenPipeError:  # the reader of our output, `head` say, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return _complain("interrupted, nothing was written", 130)
    except UsageError as error:
        return _complain(str(error), 2)
    except InputError as error:
        return _complain(str(error))
    except MemoryError as error:
        return _complain(f"there is not enough memory for this ({error})" if str(error) else "out of memory")
    except OSError as error:
        where = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
        return _complain(f"{where}{error.strerror or error}")


def _parser(verb: str | None = None) -> argparse.ArgumentParser:
    """With `verb` alone where that is one: building the parsers of all of them takes longer than many a verb."""
    parser = Parser(
        prog="eesvm",
        description="Set the thresholds of many detectors that are OR-ed together, and prove how good they are.",
        epilog="Try `eesvm demo --scores -o demo`, or `eesvm VERB --help` for an example of each verb.",
    )
    parser.add_argument("--version", action="version", version=f"eesvm {__version__}")
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    wanted = [module for module in VERBS if module.__name__.rpartition(".")[2] == verb]
    for module in wanted or VERBS:
        module.add_parser(verbs)
    return parser


def _complain(sentence: str, status: int = 1) -> int:
    line = " ".join(sentence.split())  # one line, whatever a library put into its message
    sys.stderr.write(f"eesvm: error: {line}\n")
    return status
