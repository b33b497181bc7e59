"""What a person sees: progress, a table for every job, mistakes in one line. Nothing else in the package prints."""
