"""What a file of the package imports, read off its source."""

import ast


def imported_modules(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ([node.module] if node.module != "eesvm" else [f"eesvm.{a.name}" for a in node.names])
