"""How the documentation is built; `make docs` does it. Nothing on a built page comes from another machine."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

from eesvm import __version__

project = "eesvm"
author = "The eesvm developers"
copyright = "the eesvm developers"
release = version = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx_gallery.gen_gallery",
    "command_line",
    "docstrings",
    "mathml",
    "repository",
]
exclude_patterns = ["_build", "_ext", "examples", "gallery/*.ipynb", "gallery/*.py"]
smartquotes_action = "D"  # dashes only: a quoted word is often a value to type
highlight_language = "none"  # indented blocks are commands and formulas; Python says so itself

# Pages are Markdown that reads well as plain files, too.
myst_enable_extensions = ["dollarmath"]
myst_fence_as_directive = ["math"]
myst_heading_anchors = 3
myst_update_mathjax = False
html_math_renderer = "mathml"

# The reference.
autodoc_default_options = {"members": True, "member-order": "bysource"}
autodoc_typehints = "signature"
autodoc_type_aliases = {name: name for name in ("ArrayLike", "FloatArray", "DTypeLike", "ProgressCallback")}
autodoc_preserve_defaults = True
autosummary_generate = False
default_role = "py:obj"
napoleon_google_docstring = False
napoleon_use_param = False
napoleon_use_rtype = False
napoleon_custom_sections = [("Attributes", "params_style")]
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
add_module_names = False

# The gallery: every example runs when the site is built.
sphinx_gallery_conf = {
    "examples_dirs": "examples",
    "gallery_dirs": "gallery",
    "filename_pattern": "plot_",
    "within_subsection_order": "FileNameSortKey",
    "download_all_examples": False,
    "show_signature": False,
    "write_computation_times": False,
    "min_reported_time": 10**6,  # how long an example takes says more about the machine than about the example
    "reset_modules": ("matplotlib", "gallery_style.reset"),
}

html_theme = "furo"
html_title = f"eesvm {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
