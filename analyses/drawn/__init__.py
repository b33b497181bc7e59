"""Figures as data, and the three ways to see them: on paper, in a browser, on a page of their own."""
