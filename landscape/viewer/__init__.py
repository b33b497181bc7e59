"""The viewer: a stored result turned into a page to explore and a figure to print. It never touches a model.

`write_page` writes one HTML file that needs nothing else, `write_figure` the contour or curve alone as PDF or PNG; both
draw what `describe` says. `write_spectrum` draws the spectral density of a measurement of curvature.
"""

from landscape.viewer.describe import Description, describe
from landscape.viewer.figure import write_figure
from landscape.viewer.page import write_page
from landscape.viewer.spectrum import write_spectrum

__all__ = ["Description", "describe", "write_figure", "write_page", "write_spectrum"]
