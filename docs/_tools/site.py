"""Hooks of the site: pages that lie elsewhere in the repository; formulas as MathML, which browsers draw."""

from __future__ import annotations

import html
import posixpath
import re
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

_ROOT = Path(__file__).resolve().parents[2]
_PAGES = {  # of the repository → of the site
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
    "data/reference/README.md": "bundled-run.md",
}
_FIGURES = sorted((_ROOT / "figures").glob("lab-*.png"))
_LINK = re.compile(r"(\]\()([^)#:\s]+)(#[^)\s]*)?(\))")
_REHEARSED = re.compile(r"(?<=^```)bash rehearse$", re.MULTILINE)  # GitHub reads the first word, Markdown here all
_FORMULA = re.compile(r'<(span|div) class="arithmatex">(.*?)</\1>', re.DOTALL)


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that lie outside of docs/."""
    for source, target in _PAGES.items():
        files.append(File.generated(config, target, content=(_ROOT / source).read_text(encoding="utf-8")))
    for figure in _FIGURES:
        files.append(File.generated(config, f"figures/{figure.name}", abs_src_path=str(figure)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Lead links to files of the repository to pages of the site; take from blocks what is for who runs them."""
    site = page.file.src_uri
    sources = {target: source for source, target in _PAGES.items()}
    there = {f"figures/{figure.name}": f"figures/{figure.name}" for figure in _FIGURES} | _PAGES
    here = posixpath.dirname(sources.get(site, posixpath.join("docs", site)))

    def led(match: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(here, match[2]))
        target = there.get(path) or (path.removeprefix("docs/") if path.startswith("docs/") else None)
        if target is None:
            return match[0]
        return f"{match[1]}{posixpath.relpath(target, posixpath.dirname(site) or '.')}{match[3] or ''}{match[4]}"

    return _LINK.sub(led, _REHEARSED.sub("bash", markdown))


def on_page_content(content: str, page: Any = None, **_: Any) -> str:
    r"""Turn \(…\) and \[…\] into MathML.

    Raises:
        PluginError: a block that was not understood.
    """
    if page is not None and (lost := re.search(r"<p>```.*", content)):
        raise PluginError(f"{page.file.src_uri}: {lost[0]}: not taken for a block")

    def drawn(match: re.Match[str]) -> str:
        source = html.unescape(re.sub(r"<[^>]+>", "", match[2])).strip()
        display = "block" if source.startswith(r"\[") else "inline"
        return str(convert(source[2:-2].strip(), display=display))

    return _FORMULA.sub(drawn, content)
