"""What one run in the sandbox may take. No heavy imports."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """Bounds of one process, and of a run as a whole."""

    wall_s: float = 4.0
    """Seconds on the clock for the whole run."""
    cpu_s: int = 2
    """Processor seconds of a process, over all its threads."""
    memory_mb: int = 1024
    """Address space; stacks of threads count in full."""
    stack_mb: int = 64
    """Of the main thread."""
    output_bytes: int = 1 << 20
    """Of each stream that is read; more ends the run."""
    file_mb: int = 4
    """Of one file in the scratch folder."""
    counted: int = 64
    """Threads, files and folders that a process may make in all. With `file_mb` it bounds what the
    scratch folder can hold."""
    open_files: int = 64
