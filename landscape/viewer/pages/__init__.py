"""Pages: HTML with the data in it, and the script that draws."""
