"""What it all runs on: arithmetic, memory, processes, and a record of them."""
