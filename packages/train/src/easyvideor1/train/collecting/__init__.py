"""`evr-train job=collect`: a model answers training samples, good answers become trajectories."""
