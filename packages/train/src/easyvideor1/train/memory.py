"""How much memory is in use, for readings at each arrow of a hand-over."""

import os
from pathlib import Path

from easyvideor1.schema import environment

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def used_bytes() -> int:
    """Memory in use on this process's GPU, by anyone; without a GPU resident memory of this process
    and those below it.
    """
    if environment.has_nvidia_gpu():
        import torch

        free, total = torch.cuda.mem_get_info()
        return total - free
    return sum(_resident_bytes(pid) for pid in _with_descendants(os.getpid()))


def _with_descendants(root: int) -> set[int]:
    parents = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            # After the command, which may hold spaces and brackets: state, then parent.
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(entry.name)] = int(fields[1])
    found = {root}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def _resident_bytes(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES
    except OSError:
        return 0
