"""How Sphinx builds the manual: python3 tests/run.py -e docs

No network is needed: the few places of other manuals that this one links to are listed in
inventories/.
"""

import sys
import zlib
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import scrapy_rep

project = "scrapy-rep"
author = copyright = "The scrapy-rep developers"
version = release = scrapy_rep.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.intersphinx"]
exclude_patterns = ["_build", "inventories"]
nitpicky = True
# Names of this package that its signatures have and the manual has no use for.
nitpick_ignore = [
    ("py:class", "Kind"),
    ("py:class", "scrapy_rep.protocol.entries.Kind"),
    ("py:meth", "pace"),
]

html_theme = "furo"
html_title = f"scrapy-rep {release}"
html_static_path = ["_static"]
html_css_files = ["wrap.css"]

myst_heading_anchors = 4

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True


def inventory(name: str) -> str:
    """Write the inventory of another manual in Sphinx's form. Returns where it is, for intersphinx.

    Each line of inventories/NAME.txt is `object domain:role priority page#anchor title`.
    """
    lines = HERE.joinpath("inventories", f"{name}.txt").read_bytes()
    head = f"# Sphinx inventory version 2\n# Project: {name}\n# Version:\n"
    head += "# The remainder of this file is compressed using zlib.\n"
    file = HERE / "_build" / f"{name}.inv"
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(head.encode() + zlib.compress(lines))
    return str(file)


# Pages that live elsewhere in the repository, where people look for them first.
ELSEWHERE = {"security": "SECURITY.md", "changelog": "CHANGELOG.md"}
# What only contributors read stays in the repository.
REPOSITORY = "https://github.com/scrapy-rep/scrapy-rep/blob/main/"
LINKED = ("CONTRIBUTING.md", "benchmarks/README.md")


def bring_home(app: Sphinx, page: str, source: list[str]) -> None:
    """Read those pages from their places, and let links to them lead to the manual's own. All links
    lead where they should on the repository's own site as well."""
    text, root = source[0], "../"
    if page in ELSEWHERE:
        text = HERE.parent.joinpath(ELSEWHERE[page]).read_text("utf-8")
        text, root = text.replace("](docs/", "]("), ""
    for name, path in ELSEWHERE.items():
        text = text.replace(f"]({root}{path}", f"]({name}.md")
    for path in LINKED:
        text = text.replace(f"]({root}{path}", f"]({REPOSITORY}{path}")
    source[0] = text


def separate_lines(app: Sphinx, document: nodes.document) -> None:
    """Have each line of a listing in a span of its own: see _static/wrap.css."""
    for number, block in enumerate(document.findall(nodes.literal_block)):
        block.setdefault("highlight_args", {})["linespans"] = f"block{number}"


def setup(app: Sphinx) -> None:
    app.connect("source-read", bring_home)
    app.connect("doctree-read", separate_lines)


intersphinx_mapping = {
    "python": ("https://docs.python.org/3", inventory("python")),
    "scrapy": ("https://docs.scrapy.org/en/latest", inventory("scrapy")),
}
