"""The viewer: stored results turned into pages to explore and figures to print. It never touches a model.

    a stored result → described (plain text and numbers) → pages (HTML and a script) or printed (PDF, PNG)

`write_page` writes one HTML file that needs nothing else, `write_figure` the contour or curve alone; both draw what
`describe` says. `write_spectrum` draws the spectral density of a measurement of curvature.
"""

from landscape.viewer.described.describe import Description, describe
from landscape.viewer.pages.slice import write_page
from landscape.viewer.printed.slice import write_figure
from landscape.viewer.printed.spectrum import write_spectrum

__all__ = ["Description", "describe", "write_figure", "write_page", "write_spectrum"]
