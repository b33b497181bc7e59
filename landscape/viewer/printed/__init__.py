"""Figures for papers, one column wide, PDF or PNG."""
