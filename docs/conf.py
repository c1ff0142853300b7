"""Sphinx's configuration. The sources that Sphinx reads are a copy of this folder with the generated reference: see
generate.py.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from restructured import restructured

from spvfilter import __version__

project = "spvfilter"
author = "spvfilter contributors"
copyright = author
version = release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc"]
html_theme = "furo"
html_title = f"spvfilter {__version__}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False
exclude_patterns = ["*.py"]
myst_enable_extensions = ["deflist", "colon_fence"]
myst_heading_anchors = 3
toc_object_entries = (
    False  # the pages of the reference list their names themselves; a navigation with 1,300 of them takes a minute
)
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 100
pygments_style = "friendly"
pygments_dark_style = "monokai"


def rewrite(app, what, name, value, options, lines):
    lines[:] = restructured(lines)


def setup(app):
    app.connect("autodoc-process-docstring", rewrite)
