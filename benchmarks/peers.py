"""Other people's curvature of the same loss, for `curvature.py`; `pip install --no-deps -r benchmarks/peers.txt`.

Each gets what it asks for: a module from inputs to outputs, a criterion that is a mean, and batches (inputs, targets).
All average over batches of equal size, so their Hessian is the one of the mean over tokens. Their parameters are in
the order of ours.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from landscape.curvature import LinearOperator

MISSING = "not installed (pip install --no-deps -r benchmarks/peers.txt)"
Data = list[tuple[Tensor, Tensor]]
CRITERION = nn.CrossEntropyLoss()


class Flat(nn.Module):
    """Ids (windows, tokens) to the logits of every predicted token (windows · (tokens − 1), vocabulary)."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor) -> Tensor:
        """Logits at every position but the last."""
        return self.model(input_ids=ids, use_cache=False).logits[:, :-1].flatten(0, 1)


@dataclass(frozen=True)
class Answer:
    """A largest eigenvalue as a package gives it; whether the package calls it converged, where it says."""

    value: float
    products: int
    converged: bool | None = None


def attempt(function: Callable[[], None]) -> str:
    """Run it; nothing, or why it did not work."""
    try:
        function()
    except ImportError:
        return MISSING
    except Exception as error:
        return f"fails: {type(error).__name__}: {(str(error).strip().splitlines() or [''])[0][:160]}"
    return ""


def pyhessian(model: nn.Module, data: Data) -> Any:
    """PyHessian's object, which counts its products."""
    from pyhessian import hessian

    class Counting(hessian):
        products = 0

        def dataloader_hv_product(self, v: list[Tensor]) -> Any:
            self.products += 1
            return super().dataloader_hv_product(v)

    return Counting(Flat(model), CRITERION, dataloader=data, cuda=data[0][0].device.type == "cuda")


def pyhessian_product(model: nn.Module, data: Data) -> Callable[[Tensor], Tensor]:
    found = pyhessian(model, data)
    shapes = [parameter.shape for parameter in found.params]

    def product(v: Tensor) -> Tensor:
        pieces = v.split([shape.numel() for shape in shapes])
        rows = found.dataloader_hv_product([p.view(s) for p, s in zip(pieces, shapes, strict=True)])[1]
        return torch.cat([row.reshape(-1) for row in rows])

    return product


def pyhessian_top(model: nn.Module, data: Data, seed: int = 0, most: int = 100) -> Answer:
    """Its defaults: power iteration from a random vector until the Rayleigh quotient changes by less than 1e-3."""
    torch.manual_seed(seed)
    found = pyhessian(model, data)
    values, _ = found.eigenvalues(maxIter=most, tol=1e-3)
    return Answer(float(values[0]), found.products)


def pyhessian_trace(model: nn.Module, data: Data, probes: int) -> None:
    pyhessian(model, data).trace(maxIter=probes, tol=0.0)


def eigenthings(model: nn.Module, data: Data) -> Any:
    """hessian-eigenthings' operator."""
    from hessian_eigenthings import HessianOperator
    from hessian_eigenthings.loss_fns import supervised_loss

    return HessianOperator(Flat(model), data, supervised_loss(CRITERION))


def eigenthings_product(model: nn.Module, data: Data) -> Callable[[Tensor], Tensor]:
    return eigenthings(model, data).matvec


def eigenthings_of(operator: LinearOperator) -> Any:
    """Our product as an operator of hessian-eigenthings: its algorithms, without waiting for its products."""
    from hessian_eigenthings.operators import LambdaOperator

    return LambdaOperator(lambda v: operator @ v, operator.n, operator.device, operator.dtype)


def eigenthings_top(operator: Any, seed: int = 0, k: int = 1, most: int | None = None, which: str = "LA") -> Answer:
    """Its Lanczos, `most` products long; None is its default, 2k."""
    from hessian_eigenthings.algorithms.lanczos import lanczos

    found = lanczos(operator, k=k, max_iter=most, which=which, seed=seed)
    best = int(found.eigenvalues.argmax())
    return Answer(float(found.eigenvalues[best]), found.iterations, bool(found.converged[best]))


def eigenthings_trace(model: nn.Module, data: Data, probes: int) -> None:
    from hessian_eigenthings.algorithms.trace import trace

    trace(eigenthings(model, data), num_matvecs=probes, method="hutchinson", seed=0)


def curvlinops_product(model: nn.Module, data: Data) -> Callable[[Tensor], Tensor]:
    """The Hessian of curvlinops. It maps a product over its vectors with vmap, even over one."""
    from curvlinops import HessianLinearOperator

    flat = Flat(model)
    operator = HessianLinearOperator(flat, CRITERION, list(flat.parameters()), data, check_deterministic=False)
    return lambda v: operator @ v


def eigsh_top(product: Callable[[Tensor], Tensor], n: int, device: torch.device | str, seed: int = 0) -> Answer:
    """ARPACK through scipy with k=1, "LA", tol=1e-3, and otherwise its defaults (a basis of 20)."""
    from scipy.sparse.linalg import LinearOperator as Scipy
    from scipy.sparse.linalg import eigsh

    products = 0

    def matvec(v: np.ndarray) -> np.ndarray:
        nonlocal products
        products += 1
        return product(torch.from_numpy(v.reshape(-1).astype(np.float32)).to(device)).cpu().numpy()

    start = np.random.default_rng(seed).standard_normal(n).astype(np.float32)
    values = eigsh(Scipy((n, n), matvec=matvec, dtype=np.float32), 1, which="LA", tol=1e-3, v0=start)[0]
    return Answer(float(values[0]), products, True)
