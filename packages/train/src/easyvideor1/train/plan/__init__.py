"""Before a run: what it will take, by its config and the headers of its data."""
