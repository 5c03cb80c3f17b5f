"""What a file of the package imports, read off its source."""

import ast


def statements(node):
    """Every statement below a node; an import is one, and in expressions, of which there are many more, stands none."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
            yield child
            yield from statements(child)


def imported_modules(path):
    for node in statements(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ([node.module] if node.module != "eesvm" else [f"eesvm.{a.name}" for a in node.names])
