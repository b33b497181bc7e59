"""Input channels that are kept in high precision, because rounding them costs most.

The measure of OWQ (Lee et al. 2023, arXiv 2306.02272): what the rounding of input j adds to the error of the outputs,
(XᵀX)_jj ‖Ŵ_:j − W_:j‖².
"""

from __future__ import annotations

import torch
from torch import Tensor


def costly(weight: Tensor, rounded: Tensor, gram: Tensor, share: float) -> Tensor:
    """A mask (inputs,) over the `share` of the inputs, at least one, that cost most; of equal ones the first."""
    cost = gram.diagonal().double() * (rounded - weight).double().square().sum(dim=0)
    mask = torch.zeros(len(cost), dtype=torch.bool, device=weight.device)
    mask[torch.argsort(cost, descending=True, stable=True)[: max(1, round(share * len(cost)))]] = True
    return mask
