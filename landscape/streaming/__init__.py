"""Models that memory does not hold, one decoder block at a time: evaluated, quantized, sliced, differentiated.

A block comes out of its file, or is made from files (Θ + αu + βv, Θ + hz), all windows pass through it, and it is gone.
The numbers are those of a model in memory.
"""

from landscape.streaming.hessian import StreamedHessian
from landscape.streaming.objective import StreamedCrossEntropy
from landscape.streaming.places import losses_on_places
from landscape.streaming.probes import StreamedProbes
from landscape.streaming.quantizing import Streamed, quantize_to_scratch, streamed_losses

__all__ = [
    "Streamed",
    "StreamedCrossEntropy",
    "StreamedHessian",
    "StreamedProbes",
    "losses_on_places",
    "quantize_to_scratch",
    "streamed_losses",
]
