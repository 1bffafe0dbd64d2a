"""A run for the lease tests, as a program of its own that a test can stop and kill.

Reads one command per line: `claim KEY`, `drop KEY`, `draft NAME`, `seal NAME`, `check`, `end`;
answers each with one line.
"""

import sys
from pathlib import Path

from easyvideor1.preprocess.lease import RunLease
from easyvideor1.preprocess.sealed_file import SealedFile


def serve(cache_folder: Path) -> None:
    drafts: dict[str, SealedFile] = {}
    with RunLease(cache_folder) as lease:
        answer(lease.run_id)
        for line in sys.stdin:
            command, *arguments = line.split()
            if command == "end":
                break
            try:
                answer(run(command, *arguments, lease=lease, drafts=drafts, folder=cache_folder))
            except Exception as error:
                answer(f"{type(error).__name__}: {error}")
    answer("ended")


def run(
    command: str,
    name: str = "",
    *,
    lease: RunLease,
    drafts: dict[str, SealedFile],
    folder: Path,
) -> str:
    if command == "claim":
        return str(lease.claim(name))
    if command == "drop":
        lease.drop(name)
    elif command == "draft":
        drafts[name] = SealedFile(folder / "shards" / name, lease.drafts)
        drafts[name].file.write(lease.run_id.encode())
    elif command == "seal":
        drafts[name].seal()
    elif command == "check":
        lease.check()
    return "ok"


def answer(text: str) -> None:
    print(" ".join(text.split()), flush=True)


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
