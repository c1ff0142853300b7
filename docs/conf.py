"""Configuration of Sphinx, which reads a copy of this folder with the generated reference: see generate.py."""

import inspect
import sys
from enum import Enum
from pathlib import Path

from docutils import nodes

sys.path.insert(0, str(Path(__file__).parent))

import rooms
from restructured import restructured

from spvfilter import __version__

project = "spvfilter"
author = "spvfilter contributors"
copyright = author
version = release = __version__
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.viewcode",
    "sphinx.ext.githubpages",  # the file .nojekyll: GitHub Pages would leave out _static
    "sphinx_copybutton",
    "sphinx_design",
    "sources",
    "terms",
]
copybutton_selector = "div:not(.highlight-text) > div.highlight > pre"  # output needs no button
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
smartquotes = False  # they turn --db into –db
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 100
pygments_style = "friendly"
pygments_dark_style = "monokai"

links = rooms.links()
rooms.join_sources()


def rewrite(app, what, name, value, options, lines):
    lines[:] = restructured(lines, links)


def shorten(app, what, name, value, options, signature, returns):
    """Leave out the signature of enums: nobody calls them."""
    return ("", None) if inspect.isclass(value) and issubclass(value, Enum) else None


def separate(app, doctree):
    """Write a colon between a parameter and its text. Sphinx writes two hyphens and leaves the rest to smartquotes."""
    for node in doctree.findall(nodes.Text):
        if node == " -- ":
            node.parent.replace(node, nodes.Text(": "))


def setup(app):
    app.connect("autodoc-process-docstring", rewrite)
    app.connect("autodoc-before-process-signature", lambda app, function, is_bound: rooms.name_defaults(function))
    app.connect("autodoc-process-signature", shorten)
    app.connect("doctree-read", separate)
