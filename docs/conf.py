"""How Sphinx builds these pages."""

from importlib.metadata import version as installed_version

from sphinx.application import Sphinx

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

# Evaluated, since the class that attrs makes has no source to take them from.
autodoc_preserve_defaults = False

# Whatever has a repr that a reader could not write.
_DEFAULTS = {
    "<built-in function monotonic>": "time.monotonic",
    "mappingproxy({})": "{}",
    "NOTHING": "...",
}

# Not for readers to make: the library or the fake does.
_MADE_FOR_YOU = {
    "sandbox_exec.CliProcess",
    "sandbox_exec.CommandRunner",
    "sandbox_exec.Executor",
    "sandbox_exec.testing.FakeCall",
    "sandbox_exec.testing.FakeContainer",
    "sandbox_exec.testing.FakeImage",
    "sandbox_exec.testing.FakeKill",
}


def show_defaults(  # Sphinx decides on the arguments
    _app: Sphinx,
    _what: str,
    name: str,
    _thing: object,
    _options: object,
    signature: str | None,
    result: str | None,
) -> tuple[str | None, str | None]:
    """Write defaults in signatures as a caller would, and none for what no caller makes."""
    if name in _MADE_FOR_YOU:
        return "", None
    for ugly, plain in _DEFAULTS.items():
        signature = signature and signature.replace(ugly, plain)
    return signature, result


def setup(app: Sphinx) -> None:
    """Have signatures processed."""
    app.connect("autodoc-process-signature", show_defaults)
