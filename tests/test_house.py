"""The house as drawn in docs/architecture.md: arrows point down, siblings do not know each other, doors open fast."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "landscape"

# Who may know whom: a room may import itself, the rooms named here, and the ground floor.
GROUND = {"errors", "lazily", "machine", "storage", "tokens", "weights"}
ALLOWED = {
    "errors": set(),
    "lazily": set(),
    "machine": set(),
    "storage": set(),
    "tokens": set(),
    "weights": set(),
    "config": set(),
    "reporting": set(),
    "texts": set(),
    "decoder": set(),
    "models": {"decoder"},
    "objective": {"decoder"},
    "losses": {"objective"},
    # siblings
    "curvature": {"objective"},
    "packed": {"models"},
    "quantize": {"decoder"},
    "slices": set(),
    "statistics": set(),
    "tasks": {"losses"},
    "training": set(),
    # what jobs share
    "viewer": {"curvature", "slices"},
    "streaming": {"curvature", "decoder", "losses", "models", "objective", "quantize", "slices"},
    "sharded": {"curvature", "decoder", "models", "objective"},
    "trajectories": {"models", "training"},
    "results": {"models", "reporting"},
    "inputs": {"config", "models", "objective", "packed", "sharded", "streaming", "texts"},
    "planning": {"config", "decoder", "inputs", "models", "objective", "reporting"},
    # jobs
    "basin": {"config", "curvature", "inputs", "models", "objective", "packed", "planning", "quantize", "reporting"}
    | {"results", "slices", "streaming", "texts", "viewer"},
    "sharpness": {"config", "curvature", "inputs", "losses", "models", "objective", "planning", "quantize", "reporting"}
    | {"results", "sharded", "streaming", "texts", "viewer"},
    "evaluation": {"config", "curvature", "inputs", "losses", "models", "objective", "packed", "planning", "quantize"}
    | {"reporting", "results", "streaming", "tasks", "texts", "viewer"},
    "quantizing": {"config", "evaluation", "inputs", "models", "quantize", "reporting"},
    "pretraining": {"config", "models", "reporting", "results", "texts", "training"},
    "averaging": {"config", "models", "reporting", "training"},
    "study": {"averaging", "config", "curvature", "evaluation", "models", "quantize", "reporting", "sharpness", "texts"}
    | {"training", "trajectories"},
    "allocation": {"config", "evaluation", "inputs", "models", "quantize", "reporting", "sharpness", "study"},
    "correlations": {"config", "statistics", "study"},
    "verifying": {"basin", "config", "curvature", "evaluation", "inputs", "losses", "models", "packed", "quantize"}
    | {"reporting", "sharpness", "slices", "study", "trajectories"},
    "viewing": {"config", "curvature", "reporting", "slices", "study", "viewer"},
    # doors
    "terminal": {"allocation", "averaging", "basin", "config", "correlations", "evaluation", "planning", "pretraining"}
    | {"quantizing", "reporting", "sharpness", "slices", "study", "verifying", "viewer", "viewing"},
    "cli": {"allocation", "averaging", "basin", "config", "correlations", "evaluation", "planning", "pretraining"}
    | {"quantizing", "sharpness", "study", "terminal", "verifying"},
    "__main__": {"cli"},
    "__init__": {"averaging", "basin", "config", "curvature", "evaluation", "models", "objective", "pretraining"}
    | {"quantizing", "sharpness", "slices", "study"},
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
    code = (
        "import sys, landscape.viewing.serving, landscape.viewer; print({'torch', 'transformers'} & set(sys.modules))"
    )
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
