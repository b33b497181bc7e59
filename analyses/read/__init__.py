"""Study tables, as questions read them: which runs, which numbers with which errors, which differences."""
