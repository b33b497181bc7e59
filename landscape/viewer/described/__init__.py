"""What a stored result shows, in plain text and numbers, before anything is drawn."""
