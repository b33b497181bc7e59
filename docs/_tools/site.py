"""Hooks of the site: pages that lie elsewhere in the repository; formulas as MathML, which browsers draw."""

from __future__ import annotations

import html
import posixpath
import re
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
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
_FORMULA = re.compile(r'<(span|div) class="arithmatex">(.*?)</\1>', re.DOTALL)


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that lie outside of docs/."""
    for source, target in _PAGES.items():
        files.append(File.generated(config, target, content=(_ROOT / source).read_text(encoding="utf-8")))
    for figure in _FIGURES:
        files.append(File.generated(config, f"figures/{figure.name}", abs_src_path=str(figure)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Let links to files of the repository lead to the pages of the site."""
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

    return _LINK.sub(led, markdown)


def on_page_content(content: str, **_: Any) -> str:
    r"""Turn \(…\) and \[…\] into MathML."""

    def drawn(match: re.Match[str]) -> str:
        source = html.unescape(re.sub(r"<[^>]+>", "", match[2])).strip()
        display = "block" if source.startswith(r"\[") else "inline"
        return str(convert(source[2:-2].strip(), display=display))

    return _FORMULA.sub(drawn, content)
