"""The documentation: blocks say what they are, the site lists all pages, what runs blocks tells right from wrong."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "docs" / "_tools"))

import blocks  # noqa: E402
from workshop import workshop  # noqa: E402

PAGES = blocks.pages()


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory):
    with workshop(tmp_path_factory.mktemp("shop")) as made:
        yield made


@pytest.fixture
def run(shop, tmp_path: Path):
    def run(text: str) -> blocks.Ran:
        (tmp_path / "page.md").write_text(text, encoding="utf-8")
        return blocks.run_page(tmp_path / "page.md", shop)

    return run


@pytest.mark.parametrize("path", PAGES, ids=blocks.named)
def test_every_block_says_what_it_is(path: Path):
    known = {"bash", "python", "yaml", "text", "math", "julia", "r", "matlab"}
    for block in blocks.blocks(path):
        assert block.language in known, block
        assert not block.rehearsed or block.language == "bash", block


def test_the_site_lists_every_page_and_no_other():
    class Loader(yaml.SafeLoader):
        """Of a file that names Python objects, which are not made here."""

    Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda loader, suffix, node: None)
    nav = yaml.load((ROOT / "mkdocs.yml").read_text(), Loader)["nav"]
    listed = set(re.findall(r"[\w/-]+\.md", str(nav)))
    elsewhere = {"index.md", "contributing.md", "security.md", "changelog.md", "bundled-run.md"}
    assert listed - elsewhere == {str(path.relative_to(ROOT / "docs")) for path in PAGES if "docs" in path.parts}
    assert elsewhere <= listed


def test_links_between_pages_lead_somewhere():
    for path in PAGES:
        for link in re.findall(r"\]\(([^)#:\s]+)", path.read_text(encoding="utf-8")):
            assert link in ("http", "https") or (path.parent / link).exists(), f"{path}: {link}"


def test_blocks_run_in_order_in_one_place(run):
    ran = run(
        "```bash\necho 3 > number; test -f runs/mine/step8000/config.json; test -f held-out.jsonl\n```\n"
        "```python\nnumber = int(open('number').read())\n```\n"
        '```yaml title="given.yaml"\na: 1\n```\n'
        "```python\nassert number == 3 and open('given.yaml').read() == 'a: 1\\n'\nprint('seen')\n```\n"
        "```text\nno code {\n```\n"
    )
    assert (ran.failure, ran.run) == ("", 4)


@pytest.mark.parametrize(
    ("block", "said"),
    [
        ("bash\nfalse\necho later", "exit code 1"),
        ("bash\nfalse | true", "exit code 1"),
        ("python\nraise SystemExit('gone')", "gone"),
        ("python\n1 / 0", "ZeroDivisionError"),
        ("yaml\na: [1", "expected"),
        ("bash rehearse\nlandscape slice MODEL --no-such-option 3", "No such option: --no-such-option"),
        ("bash rehearse\nlandscape slices MODEL", "no such command"),
        ("bash rehearse\nmake slices MODELS=x", "takes no MODELS"),
        ("bash rehearse\nmake lab SIZE=tiny ARGS='--sizes 2'\nlandscape sharpness M --probes many", "--probes"),
        ("bash rehearse\ntorchrun --nproc-per-node 2 -m landscape slice M --grids 3x3", "--grids"),
        ("bash rehearse\npython benchmarks/none.py", "exit code 1"),
        ("\nls", "expected bash"),
    ],
)
def test_what_is_wrong_fails_and_is_said(run, block: str, said: str):
    ran = run(f"# Title\n\n```{block}\n```\n")
    assert said in ran.failure and "page.md:3" in ran.failure


def test_a_block_without_an_end_is_a_mistake(tmp_path: Path):
    (tmp_path / "page.md").write_text("```bash\nls\n")
    with pytest.raises(ValueError, match="a block that does not end"):
        list(blocks.blocks(tmp_path / "page.md"))
