"""`python -m landscape`, as torchrun wants it."""

from landscape.cli import main

main()
