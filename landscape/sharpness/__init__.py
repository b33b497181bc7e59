"""The job: a model and a text in; eigenvalues, trace, spectral density and the quadratic model out."""

from landscape.sharpness.job import SharpnessResult, measure_sharpness

__all__ = ["SharpnessResult", "measure_sharpness"]
