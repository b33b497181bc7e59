"""The house as drawn in docs/architecture.md: arrows point down, siblings do not know each other, doors open fast."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "landscape"

# Who may know whom: a room may import itself, the rooms named here, and the ground floor.
GROUND = {
    "arithmetic",
    "digests",
    "environment",
    "errors",
    "files",
    "hdf5",
    "lazily",
    "weights",
    "tokens",
    "memory",
    "heap",
    "ranks",
    "scratch",
}
ALLOWED = {
    "arithmetic": set(),
    "environment": set(),
    "digests": set(),
    "hdf5": {"hdf5_bytes"},
    "hdf5_bytes": set(),
    "shards": set(),
    "claims": {"references"},
    "errors": set(),
    "files": set(),
    "lazily": set(),
    "weights": set(),
    "recompute": set(),
    "head": set(),
    "interrupts": set(),
    "memory": set(),
    "heap": set(),
    "scratch": set(),
    "ranks": set(),
    "blocks": {"head"},
    "tokens": set(),
    "config": set(),
    "references": {"shards"},
    "texts": set(),
    "objective": {"head", "recompute"},
    "evaluate": {"objective"},
    "models": {"claims", "references"},
    "mapped": {"blocks", "models", "references", "shards"},
    "streaming": {"blocks", "curvature", "evaluate", "mapped", "objective", "quantize", "slices"},
    "packed": {"models", "references", "shards"},
    "tasks": {"evaluate"},
    "quantize": {"blocks"},
    "slices": set(),
    "curvature": {"objective"},
    "training": set(),
    "statistics": set(),
    "viewer": {"curvature", "slices"},
    "sharded": {"blocks", "curvature", "mapped", "objective", "references"},
    "inputs": {"mapped", "packed", "models", "references", "sharded", "streaming", "texts", "objective", "config"},
    "reporting": set(),
    "results": {"references", "reporting"},
    "eigenvectors": {"curvature"},
    "planes": {"config", "curvature", "eigenvectors", "inputs", "packed", "quantize", "references", "slices"},
    "basin": {
        "packed",
        "planes",
        "planning",
        "reporting",
        "results",
        "inputs",
        "models",
        "references",
        "texts",
        "objective",
        "config",
        "quantize",
        "slices",
        "streaming",
        "viewer",
    },
    "sharpness": {"reporting", "results", "inputs", "models", "references", "texts", "objective", "config", "quantize"}
    | {"curvature", "eigenvectors", "evaluate", "planning", "sharded", "streaming", "viewer"},
    "evaluation_tasks": {"config", "inputs", "reporting", "tasks"},
    "evaluation_step": {"config", "curvature", "evaluate", "inputs", "models", "objective", "packed", "references"}
    | {"reporting"},
    "evaluation": {
        "config",
        "evaluate",
        "evaluation_step",
        "evaluation_tasks",
        "inputs",
        "models",
        "packed",
        "quantize",
    }
    | {"mapped", "planning", "references", "reporting", "results", "streaming", "texts"},
    "quantizing": {"config", "evaluation", "inputs", "models", "quantize", "references", "reporting"},
    "pretraining": {"config", "models", "references", "reporting", "results", "texts", "training"},
    "averaging": {"config", "models", "references", "reporting", "training"},
    "trajectories": {"references", "training"},
    "training_table": {"averaging", "pretraining", "terminal"},
    "study": {"averaging", "config", "curvature", "evaluation", "mapped", "quantize", "references", "reporting"}
    | {"sharpness", "texts", "training", "trajectories"},
    "correlations": {"config", "statistics", "study"},
    "allocation": {"config", "evaluation", "inputs", "models", "quantize", "references", "reporting", "sharpness"}
    | {"study"},
    "study_table": {"allocation", "correlations", "evaluation_table", "study", "terminal"},
    "__main__": {"cli"},
    "terminal": {"basin", "slices", "viewer"},
    "frontier": {"config", "evaluation", "viewer"},
    "evaluation_table": {"evaluation", "frontier", "quantizing", "terminal"},
    "sharpness_table": {"sharpness", "terminal"},
    "viewing": {"config", "curvature", "reporting", "slices", "study", "viewer"},
    "serving": {"config", "interrupts", "reporting", "terminal", "viewing"},
    "verifying": {"basin", "config", "curvature", "eigenvectors", "evaluate", "evaluation", "evaluation_step", "hdf5"}
    | {"inputs", "models", "packed", "planes", "quantize", "references", "reporting", "sharpness", "slices", "study"}
    | {"trajectories"},
    "verify_table": {"verifying"},
    "planning": {"blocks", "config", "inputs", "mapped", "models", "objective", "references", "reporting"},
    "plan_table": {"planning"},
    "command": {"interrupts", "terminal"},
    "cli": {"allocation", "averaging", "correlations", "pretraining", "study", "study_table", "training_table"}
    | {
        "basin",
        "command",
        "config",
        "evaluation",
        "evaluation_table",
        "frontier",
        "plan_table",
        "planning",
        "quantizing",
    }
    | {"serving", "sharpness", "sharpness_table", "terminal", "verify_table", "verifying"},
    "__init__": {"averaging", "pretraining"}
    | {"basin", "config", "curvature", "evaluation", "models", "objective", "quantizing", "references"}
    | {"sharpness", "slices", "study"},
}


def room(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return parts[0]


def imports(path: Path) -> set[str]:
    """Rooms of the package that a file imports, also inside functions."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "landscape":
            parts = node.module.split(".")
            found |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("landscape.")}
    return found


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_arrows_point_down(path: Path):
    own = room(path)
    assert own in ALLOWED, f"a new room: say in docs/architecture.md and here whom {own} may know"
    assert imports(path) - {own} - GROUND <= ALLOWED[own]


def test_the_viewer_needs_no_model():
    """It reads stored results; torch and transformers must not even be loaded, nor by the job that shows them."""
    code = "import sys, landscape.serving, landscape.viewer; print({'torch', 'transformers'} & set(sys.modules))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "set()"


def test_the_package_and_the_command_line_do_not_load_torch():
    code = "import sys, landscape, landscape.cli; print(sorted({'torch', 'transformers', 'h5py'} & set(sys.modules)))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


def test_every_public_name_opens():
    import landscape

    for name in landscape.__all__:
        assert getattr(landscape, name) is not None
    assert set(dir(landscape)) == set(landscape.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        landscape.nonsense  # noqa: B018


def test_files_stay_short():
    for path in PACKAGE.rglob("*.py"):
        assert len(path.read_text(encoding="utf-8").splitlines()) <= 400, path.name
