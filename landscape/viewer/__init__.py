"""The viewer: a stored slice turned into a page to explore and a figure to print. It never touches a model.

`write_page` writes one HTML file that needs nothing else, `write_figure` the contour alone as PDF or PNG. Both draw
what `describe` says.
"""

from landscape.viewer.describe import Description, describe
from landscape.viewer.figure import write_figure
from landscape.viewer.page import write_page

__all__ = ["Description", "describe", "write_figure", "write_page"]
