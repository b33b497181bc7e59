"""Tables of training runs, and what hangs together in them."""
