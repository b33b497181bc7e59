"""Stored results → pages and figures: one page that stands alone, or a folder of them with an index.

    files → find (what may be a result) → contents (what they hold) → site (a page each; what did not change stays)

No model and no torch: a page is made from what is stored.
"""

from landscape.viewing.job import is_alone, site_of, view_results
from landscape.viewing.site import Site, Viewed

__all__ = ["Site", "Viewed", "is_alone", "site_of", "view_results"]
