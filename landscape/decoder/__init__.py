"""A decoder taken in parts: block by block, the head in pieces of a batch, activations computed again."""
