"""How Sphinx builds these pages."""

from importlib.metadata import version as installed_version

project = "sandbox-exec"
author = "The sandbox-exec authors"
release = installed_version("sandbox-exec")
version = release

extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["_build"]

html_theme = "furo"
html_title = f"sandbox-exec {release}"

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
# `default_timeout=30.0` says more than the repr of an attrs factory.
autodoc_preserve_defaults = True
