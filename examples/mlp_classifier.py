"""Curvature of a model that is not a language model: a classifier with an objective of its own.

    python examples/mlp_classifier.py

The engine knows only an objective: weights and a batch to the sum of the losses and their number. Trains a small MLP on
clusters of points for a few seconds, and prints its sharpness and trace on the way and its spectrum at the end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call

from landscape import curvature
from landscape.weights import Weights


@dataclass(frozen=True)
class Classification:
    """Cross-entropy of a classifier in nats per example; `outputs` and `loss` apart for Gauss-Newton."""

    model: nn.Module
    batches: Sequence[tuple[Tensor, Tensor]]

    def __call__(self, weights: Mapping[str, Tensor], batch: tuple[Tensor, Tensor]) -> tuple[Tensor, int]:
        """(sum of the losses, number of examples)."""
        return self.loss(self.outputs(weights, batch), batch)

    def outputs(self, weights: Mapping[str, Tensor], batch: tuple[Tensor, Tensor]) -> Tensor:
        """Logits (examples, classes)."""
        return functional_call(self.model, dict(weights), (batch[0],))

    def loss(self, outputs: Tensor, batch: tuple[Tensor, Tensor]) -> tuple[Tensor, int]:
        """Σ −log softmax(outputs)[label]."""
        return nn.functional.cross_entropy(outputs, batch[1], reduction="sum"), len(batch[1])


def clusters(n: int, classes: int = 10, features: int = 32) -> tuple[Tensor, Tensor]:
    """Points around `classes` random centres, and which one each belongs to."""
    centres = torch.randn(classes, features)
    labels = torch.randint(classes, (n,))
    return centres[labels] + 1.2 * torch.randn(n, features), labels


def report(step: int, objective: Classification) -> None:
    """One line: the loss, both ends of the spectrum, the trace, and what Gauss-Newton makes of the top."""
    weights = Weights.of(objective.model)
    hessian = curvature.Hessian(objective, weights)
    start = curvature.noisy(hessian.gradient(), seed=0)
    top = curvature.eigenvalues(hessian, start)
    bottom = curvature.eigenvalues(hessian, start, which="bottom")
    trace = curvature.hutchinson(hessian, curvature.Budget(relative_error=0.02, maximum=400))
    fisher = curvature.eigenvalues(curvature.GaussNewton(objective, weights), start)
    print(
        f"{step:5d}  loss {hessian.loss():.4f}  λ_max {top.values[0]:8.3f} ± {top.residuals[0]:.3f}  "
        f"λ_min {bottom.values[0]:7.3f} ± {bottom.residuals[0]:.3f}  "
        f"tr H {trace.value:8.2f} ± {trace.standard_error:.2f}  λ_max of Gauss-Newton {fisher.values[0]:8.3f}"
    )


def main() -> None:
    """Train, and report on the way."""
    torch.manual_seed(0)
    inputs, labels = clusters(2000)
    batches = list(zip(inputs.split(500), labels.split(500), strict=True))
    model = nn.Sequential(nn.Linear(32, 64), nn.LayerNorm(64), nn.GELU(), nn.Linear(64, 10))
    objective = Classification(model, batches)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters, {len(inputs):,} examples")
    for step in range(301):
        if step % 100 == 0:
            report(step, objective)
        examples, wanted = batches[step % len(batches)]
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(examples), wanted).backward()
        optimizer.step()
    density = curvature.spectral_density(curvature.Hessian(objective, Weights.of(model)), steps=40, probes=4)
    for threshold in (0.01, 0.1, 1.0):
        count, error = density.above(threshold)
        print(f"       eigenvalues above {threshold:5.2f}: {count:7.1f} ± {error:.1f}")


if __name__ == "__main__":
    main()
