"""What the reference in docs/api shows."""

import importlib
import inspect
import re
from pathlib import Path

REFERENCE = sorted((Path(__file__).resolve().parents[2] / "docs" / "api").glob("*.rst"))


def documented():
    """Names and modules that the reference documents, with the names that a module's own directive brings along."""
    names, modules = set(), set()
    for page in REFERENCE:
        prefix = "eesvm"
        for directive, argument in re.findall(r"^\.\. (\w+):: (\S+)$", page.read_text(), re.MULTILINE):
            if directive == "currentmodule":
                prefix = argument
            elif directive == "automodule":
                modules.add(argument)
            elif directive.startswith("auto"):
                names.add(argument if argument.startswith("eesvm.") else f"{prefix}.{argument}")
    for name in modules:
        module = importlib.import_module(name)
        own = [key for key, value in vars(module).items() if getattr(value, "__module__", None) == name]
        names |= {f"{name}.{key}" for key in getattr(module, "__all__", own) if key[0] != "_"}
    return names, modules


def documented_callables():
    """Functions, classes and their public methods in the reference, each once, by their dotted names."""
    found = {}
    for name in sorted(documented()[0]):
        module, _, attribute = name.rpartition(".")
        item = getattr(importlib.import_module(module), attribute)
        if inspect.isclass(item):
            found[_full_name(item)] = item
            found |= {_full_name(method): method for method in public_methods(item)}
        elif inspect.isroutine(item):
            found[_full_name(item)] = item
    return found


def public_methods(item):
    """Methods that a class or one of its bases in this package defines, as the class has them."""
    for base in item.__mro__:
        if base.__module__.split(".")[0] == "eesvm":
            for name, value in vars(base).items():
                if name[0] != "_" and (inspect.isfunction(value) or isinstance(value, classmethod | staticmethod)):
                    yield getattr(item, name)


def _full_name(item):
    return f"{item.__module__}.{item.__qualname__}"
