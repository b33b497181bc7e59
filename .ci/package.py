"""The package as somebody gets it: built, looked into, installed where no checkout is, and used there.

make package                          # wheel, sdist, a clean environment, the command
make package ARGS='--extras all'      # each extra too, in an environment of its own on top: gigabytes
make package ARGS=--lowest            # the lowest versions that pyproject.toml allows, torch among them: gigabytes
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import venv
import zipfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
BESIDE = ["CHANGELOG.md", "CITATION.cff", "LICENSE", "README.md", "pyproject.toml"]
MODULES = {  # what each extra is for
    "text": ["datasets"],
    "quant": ["bitsandbytes", "compressed_tensors", "gguf", "torchao"],
    "eval": ["lm_eval", "accelerate"],
    "study": ["pyarrow.parquet"],
    "cluster": ["ray"],
    "track": ["trackio", "wandb"],
    "llmcompressor": ["llmcompressor"],
    "gptqmodel": ["gptqmodel"],
    "oracles": ["hessian_eigenthings", "pyhessian", "loss_landscapes"],
    "docs": ["mkdocs", "material", "mkdocstrings", "latex2mathml"],
    "dev": ["pytest", "hypothesis", "playwright", "xarray", "h5netcdf", "mypy"],
}
_TESTED = "basin cli evaluation quantize_models recompute reference_run sharpness slices training viewer_page"
LOWEST = [f"tests/test_{name}.py" for name in _TESTED.split()]


class Environment:
    """A virtual environment in `folder`, which sees what `below` has installed."""

    def __init__(self, folder: Path, below: Environment | None = None) -> None:
        venv.create(folder, with_pip=True)
        self.bin = folder / "bin"
        self.site = next((folder / "lib").glob("python3*")) / "site-packages"
        if below is not None:
            (self.site / "below.pth").write_text(f"{below.site}\n")

    def pip(self, *arguments: str, constraints: Path = ROOT / "constraints.txt") -> None:
        """Install; torch as constraints.txt has it."""
        options = ["--quiet", "--disable-pip-version-check", "-c", str(constraints)]
        run([self.bin / "python", "-m", "pip", "install", *options, *arguments])

    def python(self, code: str, where: Path) -> str:
        """What a program prints, far from the checkout."""
        return run([self.bin / "python", "-W", "ignore", "-c", code], where)


def run(command: Sequence[str | Path], where: Path = ROOT) -> str:
    """What a command prints; where it fails, that is all that is left to say."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PIP_REQUIRE"))}
    done = subprocess.run(command, cwd=where, env=kept, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}\nexit code {done.returncode}")
    return done.stdout


def built(folder: Path) -> tuple[Path, Path]:
    """(wheel, sdist), from the files that git knows, and the wheel once more from the sdist: the same."""
    tools = Environment(folder / "tools")
    tools.pip("build", "hatchling")
    source = folder / "source"
    for name in tracked():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, source / name)
    build = [tools.bin / "python", "-m", "build", "--no-isolation", "--outdir"]
    run([*build, folder / "dist", "--sdist", "--wheel", source])
    (wheel,), (sdist,) = (list((folder / "dist").glob(pattern)) for pattern in ("*.whl", "*.tar.gz"))
    with tarfile.open(sdist) as archive:
        archive.extractall(folder / "unpacked", filter="data")
    (unpacked,) = (folder / "unpacked").iterdir()
    run([*build, folder / "again", "--wheel", unpacked])
    assert contents(wheel) == contents(next((folder / "again").glob("*.whl"))), "the sdist builds another wheel"
    return wheel, sdist


def tracked() -> list[str]:
    """What git knows, or would with the next commit."""
    listed = run(["git", "ls-files", "--cached", "--others", "--exclude-standard"]).splitlines()
    return [name for name in listed if (ROOT / name).is_file()]


def contents(wheel: Path) -> dict[str, str]:
    """Names → SHA-256."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: hashlib.sha256(archive.read(name)).hexdigest() for name in archive.namelist()}


def check_contents(wheel: Path, sdist: Path) -> None:
    """The wheel holds the package, all of it and nothing else; the sdist what the wheel is built from, and no more."""
    package = {name for name in tracked() if name.startswith("landscape/")}
    inside = {name for name in contents(wheel) if ".dist-info/" not in name}
    assert inside == package, f"wheel: {sorted(inside ^ package)}"
    with tarfile.open(sdist) as archive:
        there = {member.name.split("/", 1)[1] for member in archive.getmembers() if member.isfile()}
    expected = package | set(BESIDE) | {"PKG-INFO"}
    assert there - {".gitignore"} == expected, f"sdist: {sorted(there ^ expected)}"
    print(f"wheel {wheel.stat().st_size >> 10} KiB, {len(inside)} files; sdist {sdist.stat().st_size >> 10} KiB")


def use(environment: Environment, where: Path) -> None:
    """The command, where there is no checkout: its help, a slice of a run, and the run measured."""
    shutil.copytree(ROOT / "data" / "reference", where / "reference")
    text = ["--text", "reference/corpus/validation.jsonl.xz", "--tokens", "512"]
    command, run_ = str(environment.bin / "landscape"), "reference/mini-pythia"
    for name in re.findall(r"^  ([a-z]+) ", run([command, "--help"], where), re.MULTILINE):
        run([command, name, "--help"], where)
    assert "p1-160m" in run([command, "recipes"], where)
    run([command, "slice", run_, "--quant", "rtn-w3-g64", "--grid", "7x7", "--out", "slice.h5", *text], where)
    run([command, "evaluate", run_, "--quant", "rtn-w4-g64", "--out", "losses", *text], where)
    run([command, "sharpness", run_, "--density-steps", "0", "--bottom", "0", "--out", "curved.h5", *text], where)
    run([command, "verify", "slice.h5", "--model", run_, "--text", text[1]], where)
    place = environment.python("import landscape; print(landscape.__file__)", where).strip()
    assert str(ROOT) not in place, place
    print("installed and used where no checkout is")


def lowest(folder: Path) -> None:
    """Install the lowest versions of everything, and run some tests against the checkout."""
    environment = Environment(folder / "lowest")
    bounds = [re.split(r"[,<]", each.replace(">=", "=="))[0] for each in PROJECT["project"]["dependencies"]]
    kept = folder / "lowest.txt"  # or what tests need besides would bring newer ones
    kept.write_text("\n".join(bounds))
    tools = ["pytest", "pandas", "pyarrow", "hypothesis", "playwright", "xarray", "h5netcdf"]
    environment.pip(*bounds, *tools, "-e", str(ROOT), constraints=kept)
    print(run([environment.bin / "python", "-m", "pytest", "-q", "-p", "no:cacheprovider", *LOWEST])[-300:])


def main() -> None:
    """Build, look, install, use."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--extras", default="", help=f"'all', or some of {', '.join(MODULES)}, with commas")
    parser.add_argument("--lowest", action="store_true", help="the lowest versions allowed, and no more")
    options = parser.parse_args()
    extras = list(MODULES) if options.extras == "all" else [name for name in options.extras.split(",") if name]
    if odd := [name for name in extras if name not in MODULES]:
        parser.error(f"--extras {odd[0]}: expected 'all' or some of {', '.join(MODULES)}")
    assert set(MODULES) == set(PROJECT["project"]["optional-dependencies"])
    with tempfile.TemporaryDirectory(prefix="landscape-package-") as name:
        folder = Path(name)
        if options.lowest:
            return lowest(folder)
        wheel, sdist = built(folder)
        check_contents(wheel, sdist)
        clean = Environment(folder / "clean")
        clean.pip(str(wheel))
        (folder / "elsewhere").mkdir()
        use(clean, folder / "elsewhere")
        for extra in extras:
            above = Environment(folder / extra, below=clean)
            above.pip(f"landscape[{extra}] @ {wheel.as_uri()}")
            above.python("\n".join(f"import {module}" for module in MODULES[extra]), folder)
            print(f"[{extra}] installed, imported: {', '.join(MODULES[extra])}", flush=True)
            shutil.rmtree(folder / extra)


if __name__ == "__main__":
    main()
