"""The questions of the papers, one file each: what is measured, on which runs, which figure comes out."""
