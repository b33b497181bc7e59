"""The columns of a study's tables: their types, and what they mean.

A number that was measured on a sample has its standard error in `<name>_se` (of an eigenvalue, its residual in
`<name>_residual`). Numbers without one are exact functions of weights: norms, lengths, angles, shapes.
"""

from __future__ import annotations

from collections.abc import Mapping

INTEGER, NUMBER, WORD = "int64", "float64", "string"
Columns = Mapping[str, tuple[str, str]]

_WHO: Columns = {
    "run": (WORD, "name of the training run"),
    "checkpoint": (WORD, "revision"),
    "kind": (WORD, "checkpoint, or the average it is: lawa-5x500, soup:stage2-*"),
    "stage": (WORD, "stage of the training, where the revision tells one"),
    "step": (INTEGER, "training step"),
    "tokens": (NUMBER, "tokens seen"),
    "learning_rate": (NUMBER, "of the last update, by log or published schedule; empty where unknown"),
    "previous": (WORD, "Θ_{K−1}: the checkpoint of this run measured before"),
    "quantizer": (WORD, "name in the grammar of docs/quantizers.md"),
}


def _with_error(name: str, meaning: str) -> dict[str, tuple[str, str]]:
    return {name: (NUMBER, meaning), f"{name}_se": (NUMBER, f"standard error of {name}")}


STUDY: Columns = {
    **_WHO,
    "method": (WORD, "rtn, gptq, awq, …"),
    "bits": (INTEGER, "bits of a level"),
    "group_size": (INTEGER, "weights that share a scale; empty for one a channel"),
    "bits_per_weight": (NUMBER, "of a quantized weight, scales included"),
    "parameters": (INTEGER, "of the model"),
    "quantized_parameters": (INTEGER, "of the layers that are quantized"),
    **_with_error("loss", "L(Θ), nats per token"),
    **_with_error("loss_hat", "L(Θ̂), nats per token"),
    **_with_error("delta_l", "ΔL = L(Θ̂) − L(Θ), nats; its error is paired"),
    **_with_error("delta_q", "ΔQ = L(Θ̂)/L(Θ) − 1; its error is paired"),
    "delta_q_low": (NUMBER, "lower end of its 95 % interval"),
    "delta_q_high": (NUMBER, "upper end"),
    **_with_error("perplexity_ratio", "exp ΔL"),
    **_with_error("accuracy", "of Θ, mean over tasks"),
    **_with_error("accuracy_hat", "of Θ̂"),
    **_with_error("accuracy_drop", "(Acc − Âcc)/(1 − Acc), mean over tasks"),
    "curvature_tokens": (INTEGER, "that all of the following are measured on"),
    **_with_error("lambda_max", "largest (algebraic) Hessian eigenvalue"),
    "lambda_max_residual": (NUMBER, "some eigenvalue is this near"),
    **_with_error("lambda_min", "smallest"),
    "lambda_min_residual": (NUMBER, "some eigenvalue is this near"),
    **_with_error("trace", "tr H"),
    **_with_error("gradient_norm", "‖g‖ over these tokens"),
    "weight_norm": (NUMBER, "‖Θ‖"),
    "distance": (NUMBER, "‖Θ_K − Θ_{K−1}‖"),
    "step_length": (NUMBER, "‖δ‖, δ = Θ̂ − Θ"),
    "relative_step_length": (NUMBER, "‖δ‖/‖Θ‖"),
    "cosine": (NUMBER, "between δ and Θ_K − Θ_{K−1}"),
    **_with_error("g_delta", "g·δ, nats"),
    **_with_error("delta_h_delta", "δᵀHδ, nats"),
    **_with_error("curvature_along", "δᵀHδ/‖δ‖²"),
    **_with_error("predicted", "g·δ + ½ δᵀHδ, nats"),
    **_with_error("change", "ΔL on the same tokens, nats"),
    "missed_se": (NUMBER, "standard error of predicted − change, paired"),
    **_with_error("critical_sharpness", "2/η along ±δ, downhill at first: η steps bring the loss back to its start"),
    "quadratic_reach": (NUMBER, "steps δ as far as which g·δ t + ½ δᵀHδ t² is within a tenth of the change; at most 2"),
    **_with_error("predicted_diagonal", "½ Σ H_ii δ_i², nats: were the errors of rounding independent"),
    **_with_error("predicted_grid", "½ Σ tr(H_l) Δ_l²/12, nats"),
    **_with_error("predicted_length", "½ Σ tr(H_l) ‖δ_l‖²/n_l, nats"),
    **_with_error("predicted_outputs", "½ Σ tr(H_l) ‖Xδ_lᵀ‖²/(‖X‖² d_l), nats"),
    "excess_kurtosis": (NUMBER, "of the weights in a layer, mean over the quantized layers by size"),
    "excess_kurtosis_max": (NUMBER, "of the worst layer"),
    "max_over_median": (NUMBER, "max|w|/median|w|, mean over layers by size"),
    "max_over_median_max": (NUMBER, "of the worst layer"),
    "misalignment": (NUMBER, "root mean square distance of a weight from the lattice of its grid, in steps"),
    "grid_step": (NUMBER, "root mean square distance between neighbouring levels"),
    "saturation": (NUMBER, "share of weights outside their grid"),
    "model": (WORD, "reference, without any path"),
    "identity": (WORD, "commit or content hash"),
    "text": (WORD, "evaluation text"),
    "eval_tokens": (INTEGER, "tokens of the losses"),
    "tokens_fingerprint": (WORD, "SHA-256 of the evaluation windows"),
    "calibration_fingerprint": (WORD, "SHA-256 of the calibration windows"),
    "evaluation_key": (WORD, "of the evaluation's file"),
    "curvature_key": (WORD, "of the curvature's file"),
    "dtype": (WORD, "of the losses; second derivatives are float32"),
    "device": (WORD, "kind of device"),
    "versions": (WORD, "of the packages, JSON"),
}

TENSORS: Columns = {
    **{name: about for name, about in _WHO.items() if name not in ("previous", "quantizer")},
    "tensor": (WORD, "name in the model"),
    "parameters": (INTEGER, "its elements"),
    **_with_error("trace", "its share of tr H; those of all tensors add up to it"),
    "identity": (WORD, "of the checkpoint: commit or content hash"),
    "curvature_key": (WORD, "of the curvature's file"),
}

LAYERS: Columns = {
    **_WHO,
    "layer": (WORD, "name in the model"),
    "layer_quantizer": (WORD, "what rounded it"),
    "inputs": (INTEGER, "inputs of the layer"),
    "parameters": (INTEGER, "its weights"),
    "bits": (INTEGER, "bits of a level"),
    "group_size": (INTEGER, "weights that share a scale"),
    "bits_per_weight": (NUMBER, "scales included"),
    **_with_error("trace", "tr H_l over its weights"),
    "step_norm": (NUMBER, "‖δ_l‖"),
    "weight_error": (NUMBER, "‖δ_l‖/‖W‖"),
    "grid_step": (NUMBER, "Δ_l, root mean square distance between neighbouring levels"),
    "output_shift": (NUMBER, "‖Xδ_lᵀ‖²/‖X‖²"),
    "output_error": (NUMBER, "‖Xδ_lᵀ‖²/‖XWᵀ‖²"),
    "rtn_output_error": (NUMBER, "the same for round-to-nearest"),
    "g_delta": (NUMBER, "its share of g·δ, nats"),
    "delta_h_delta": (NUMBER, "its share of δᵀHδ, nats"),
    "diagonal": (NUMBER, "its share of Σ H_ii δ_i², nats"),
    "excess_kurtosis": (NUMBER, "of its weights"),
    "max_over_median": (NUMBER, "max|w|/median|w|"),
    "misalignment": (NUMBER, "as in the study's table, of this layer"),
    "saturation": (NUMBER, "share of weights outside their grid"),
}
