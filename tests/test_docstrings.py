"""Docstrings in the reference: what takes several parameters explains each of them, under its name."""

import dataclasses
import importlib
import inspect
import re

import pytest

import eesvm
from helpers.documented import documented_callables

_SECTION = re.compile(r"^(\w+)\n-+\n", re.MULTILINE)
_ENTRY = re.compile(r"^(\*{0,2}\w+(?:, \w+)*) : \S", re.MULTILINE)
_FIELD_WITH_COMMENT = re.compile(r"^    \w+: .*#", re.MULTILINE)
_FEWEST = 2  # parameters that need a section: the summary speaks of a single one


def parameters_of(item):
    """Names of the parameters of a function, a bound or unbound method, or a constructor."""
    names = list(inspect.signature(item).parameters)
    return names[1:] if names[:1] == ["self"] else names


def explained(item):
    """Names in the section of parameters, in their order; None where there is no such section."""
    _, *parts = _SECTION.split(inspect.getdoc(item) or "")
    sections = dict(zip(parts[::2], parts[1::2], strict=True))
    if "Parameters" not in sections:
        return None
    return [name.lstrip("*") for entry in _ENTRY.findall(sections["Parameters"]) for name in entry.split(", ")]


def is_record(item):
    """Dataclasses and named tuples: the reference shows their fields, with the comments behind them."""
    return inspect.isclass(item) and (dataclasses.is_dataclass(item) or hasattr(item, "_fields"))


def explains_its_fields(record):
    """By a comment behind a field, its own or inherited, or by a docstring that names all of them."""
    own = [base for base in record.__mro__ if base.__module__.split(".")[0] == record.__module__.split(".")[0]]
    if any(_FIELD_WITH_COMMENT.search(inspect.getsource(base)) for base in own):
        return True
    return all(f"`{name}`" in inspect.getdoc(record) for name in parameters_of(record))


def has_parameters(item):
    """Not errors, which take a message, nor protocols, of which nobody makes one."""
    is_made = not inspect.isclass(item) or (
        not issubclass(item, Exception) and not getattr(item, "_is_protocol", False)
    )
    return is_made and len(parameters_of(item)) >= _FEWEST


def fault(item):
    """What is wrong with the docstring of a function, method or class; "" where nothing is."""
    if not has_parameters(item):
        return ""
    if is_record(item):
        return "" if explains_its_fields(item) else "none of its fields is explained"
    wanted, found = parameters_of(item), explained(item)
    if found is None:
        return "it has no section of parameters"
    twice = sorted({name for name in found if found.count(name) > 1})
    missing, strange = [n for n in wanted if n not in found], [n for n in found if n not in wanted]
    faults = {"is missing": missing, "is no parameter": strange, "is there twice": twice}
    return "; ".join(f"{', '.join(names)} {what}" for what, names in faults.items() if names)


def test_every_parameter_in_the_reference_is_explained():
    found = {name: fault(item) for name, item in documented_callables().items()}
    assert {name: what for name, what in found.items() if what} == {}


def test_the_reference_was_read():
    found = documented_callables()
    assert len([item for item in found.values() if has_parameters(item) and not is_record(item)]) > 150
    for name in (
        "eesvm.boxes.nms",  # of a module
        "eesvm.calibration.exact.solve",  # by its public name
        "eesvm.calibration.calibrators.joint.JointCalibrator",
        "eesvm.calibration.calibrators.base.ScoreCalibrator.fit",  # inherited
        "eesvm.detector.options.DetectorOptions.make",  # of the class
        "eesvm.descriptors.base.Descriptor.describe",  # of a protocol
    ):
        assert has_parameters(found[name]), name


def test_every_public_name_was_looked_at():
    found = {id(item) for item in documented_callables().values()}
    public = [getattr(eesvm, name) for name in eesvm.__all__]
    assert [item for item in public if callable(item) and id(item) not in found] == []


def written(signature, docstring):
    """A function as somebody might write it."""
    scope = {}
    exec(f"def written({signature}):\n    {docstring!r}", scope)
    return scope["written"]


@pytest.mark.parametrize(
    ("signature", "entries", "expected"),
    [
        ("a, b", "a : one.\nb : two.", ""),
        ("a, b", "b : two,\n    and more : of it.\na : one.", ""),
        ("a, *b, c=1, **d", "a, c : both.\n*b : some.\n**d : others.", ""),
        ("a, *, b=1", "a : one.\nb : two.\n\nReturns\n-------\nc : three.", ""),
        ("a, b", None, "it has no section of parameters"),
        ("a, b", "a : one.", "b is missing"),
        ("a, b, c", "b : two.", "a, c is missing"),
        ("a, b", "a, b : both.\nc : three.", "c is no parameter"),
        ("a, b", "a, b : both.\na : again.", "a is there twice"),
        ("a, b", "a : one.\nc : two.", "b is missing; c is no parameter"),
        ("a, b", "a : one.\n\nReturns\n-------\nb : two.", "b is missing"),
        ("a, b", "a : one.\nb: two.", "b is missing"),
        ("a", None, ""),
        ("self, a", None, ""),
        ("self, a, b", "a : one.\nb : two.", ""),
    ],
)
def test_faults_are_found(signature, entries, expected):
    section = "" if entries is None else f"\n\nParameters\n----------\n{entries}"
    assert fault(written(signature, f"Summary.{section}\n")) == expected


def test_a_record_without_a_word_about_its_fields_is_found(tmp_path, monkeypatch):
    fields = "    first: int{}\n    second: int\n"
    (tmp_path / "some_records.py").write_text(
        "from dataclasses import dataclass\nfrom typing import NamedTuple\n"
        + '@dataclass\nclass Silent:\n    """A pair."""\n'
        + fields.format("")
        + '@dataclass\nclass Commented:\n    """A pair."""\n'
        + fields.format("  # of all")
        + '@dataclass\nclass Heir(Commented):\n    """A pair with more."""\n    third: int = 0\n'
        + 'class Named(NamedTuple):\n    """`first` comes before `second`."""\n'
        + fields.format("")
    )
    monkeypatch.syspath_prepend(tmp_path)
    records = importlib.import_module("some_records")
    assert fault(records.Silent) == "none of its fields is explained"
    assert fault(records.Commented) == fault(records.Heir) == fault(records.Named) == ""
