"""The map of the package in docs/design.md, made from the road of tests/test_architecture.py and the docstrings.

Run `python docs/_ext/road_map.py` after a module was added, moved or described anew; `make docs` does it too.
"""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "eesvm"
PAGE = ROOT / "docs" / "design.md"
BEGIN, END = "<!-- map: begin -->", "<!-- map: end -->"


def page_with_map(page: str) -> str:
    """The page with the map as it should be between its two marks."""
    before, rest = page.split(BEGIN)
    after = rest.split(END)[1]
    return f"{before}{BEGIN}\n{road_map()}\n{END}{after}"


def road_map() -> str:
    """A table for each room, in the order of the road: its modules, and the sentence that each opens with."""
    road, parts = (_assigned(name) for name in ("ROAD", "PARTS"))
    return "\n\n".join(_room(room, parts.get(room, ())) for room in road)


def _assigned(name: str) -> object:
    """A constant of tests/test_architecture.py, without running it."""
    tree = ast.parse((ROOT / "tests" / "test_architecture.py").read_text(encoding="utf-8"))
    values = [node.value for node in tree.body if isinstance(node, ast.Assign) and node.targets[0].id == name]
    return ast.literal_eval(values[0])


def _room(room: str, order: tuple[str, ...]) -> str:
    alone = PACKAGE / f"{room}.py"
    if alone.exists():
        return f"### `{room}.py`\n\n{_summary(alone)}"
    folder = PACKAGE / room
    files = sorted(path for path in folder.rglob("*.py") if path != folder / "__init__.py")
    if order:
        files.sort(key=lambda path: _place(path, folder, order))
    rows = [f"| `{_name(path, folder)}` | {_summary(path)} |" for path in files]
    return "\n".join([f"### `{room}/`", "", _summary(folder / "__init__.py"), "", "| module | |", "|---|---|", *rows])


def _place(path: Path, folder: Path, order: tuple[str, ...]) -> int:
    part = path.relative_to(folder).with_suffix("").parts[0]
    if part not in order:
        raise SystemExit(f"{path}: name {part!r} in PARTS of tests/test_architecture.py, after what it imports")
    return order.index(part)


def _name(path: Path, folder: Path) -> str:
    parts = path.relative_to(folder).with_suffix("").parts
    return "/".join(parts[:-1]) + "/" if parts[-1] == "__init__" else "/".join(parts)


def _summary(path: Path) -> str:
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return " ".join(text.split("\n\n")[0].split()).replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page_with_map(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
