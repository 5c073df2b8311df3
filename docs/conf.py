"""Sphinx settings.

Neither the build nor the pages need a network: no intersphinx, no fonts or scripts from elsewhere, and
equations in plain text instead of MathJax.
"""

from typing import Any

from tacit import __version__

project = "Tacit"
author = "The Tacit developers"
copyright = "The Tacit developers"  # noqa: A001 - the name that Sphinx reads
release = __version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
]
source_suffix = {".rst": "restructuredtext", ".md": "myst-nb", ".ipynb": "myst-nb"}
nb_execution_mode = "off"  # `make notebooks` executes them, and they stand there with what they show
exclude_patterns = ["_build"]
templates_path = ["_templates"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

autosummary_generate = True
autodoc_member_order = "bysource"
autodoc_typehints = "description"
# Only names that are a module's own: re-exports would be described twice.
autosummary_imported_members = False
napoleon_numpy_docstring = True
napoleon_google_docstring = False
napoleon_use_ivar = True

# A module's references are a list to read; not each is cited in its text.
suppress_warnings = ["ref.footnote", "ref.python"]

html_theme = "furo"
html_title = f"Tacit {release}"
html_static_path = ["_static"]
html_css_files = ["tacit.css"]
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0b5d7a", "color-brand-content": "#0b5d7a"},
    "dark_css_variables": {"color-brand-primary": "#6cb8d6", "color-brand-content": "#6cb8d6"},
}


def setup(app: Any) -> None:
    """Leave out what scikit-learn adds to estimators: its text refers to scikit-learn's own pages."""
    app.connect("autodoc-skip-member", lambda *member: True if member[2] == "set_score_request" else None)
