"""Refuse files over 1 MB in a commit: clips, caches and checkpoints do not belong into git."""

import sys
from pathlib import Path

LIMIT_BYTES = 1_000_000


def main() -> None:
    large = [name for name in sys.argv[1:] if Path(name).stat().st_size > LIMIT_BYTES]
    if large:
        sys.exit(f"over {LIMIT_BYTES} bytes: {', '.join(large)}")


if __name__ == "__main__":
    main()
