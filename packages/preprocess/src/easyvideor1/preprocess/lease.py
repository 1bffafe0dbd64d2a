"""A run's lease on a cache: who may seal files, and who decodes which clip. Without locks.

A run owns `<cache>/runs/<run id>/`. Its `lease.json` names the driver's process, and a thread of
the driver touches that file every few seconds; the unsealed files of its workers lie beside it.
Sealing is a rename out of the folder, so a run whose folder is gone can seal nothing: that is the
fence. A run is dead when its process is gone or its heartbeat has stopped, by the clock of the file
system. Whoever finds a dead run renames its folder into their own (one succeeds), deletes the
drafts and then drops the claims. A claim is a symbolic link `<cache>/claims/<key>` to a run id:
made by one run only, complete at once, taken just before a clip is decoded and dropped after the
clip can be read. Who wins a claim looks into the cache once more. Claims only save work: were one
lost, a clip would be decoded twice, and the cache would still be right. So nothing here has to
survive a power cut.
"""

import contextlib
import os
import shutil
import threading
import uuid
from pathlib import Path
from types import TracebackType
from typing import Self

from easyvideor1.preprocess.errors import LeaseLostError
from easyvideor1.preprocess.process_identity import ProcessIdentity

HEARTBEAT_S = 5.0
LEASE_S = 120.0
"""Without a heartbeat for this long, a run whose process cannot be seen is taken for dead. Longer
than a network file system may show an old time of a file (60 s by NFS's defaults)."""

_LEASE_FILE = "lease.json"
_TAKEN = "dead-"
"""Begins the names of dead runs' folders inside that of the run that removes them."""


class RunLease:
    """The lease of one run, from `with` to its end.

    Args:
        cache_folder: of the cache; created if absent.
        lease_s: time without a heartbeat after which another run counts as dead.

    Attributes:
        run_id: names the run.
        drafts: the run's folder, for files that are not sealed yet.
    """

    def __init__(self, cache_folder: Path, *, lease_s: float = LEASE_S):
        self.run_id = uuid.uuid4().hex[:16]
        self.drafts = cache_folder / "runs" / self.run_id
        self._claims = cache_folder / "claims"
        self._lease_s = lease_s
        self._ended = threading.Event()

    def __enter__(self) -> Self:
        self._claims.mkdir(parents=True, exist_ok=True)
        self.drafts.mkdir(parents=True)
        self._lease_file.write_text(ProcessIdentity.current().as_json())
        threading.Thread(target=self._beat, name="evr-lease", daemon=True).start()
        self.remove_dead_runs()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Drop claims and drafts."""
        self._ended.set()
        for claim in self._claims.iterdir():
            _drop(claim, self.run_id)
        # Out of the way first: a worker that is still alive cannot add to it while it is deleted.
        ended = self.drafts.with_name(f"ended-{self.run_id}")
        with contextlib.suppress(FileNotFoundError):
            self.drafts.rename(ended)
        shutil.rmtree(ended, ignore_errors=True)

    def check(self) -> None:
        """Return if the run still holds its lease.

        Raises:
            LeaseLostError: if another run took over.
        """
        if not self._lease_file.exists():
            raise LeaseLostError(str(self.drafts))

    def new_drafts(self) -> Path:
        """A folder for the drafts of one worker; without it, that worker can seal nothing.

        Raises:
            LeaseLostError: if another run took over.
        """
        folder = self.drafts / uuid.uuid4().hex[:8]
        try:
            folder.mkdir()
        except FileNotFoundError as error:
            raise LeaseLostError(str(self.drafts)) from error
        return folder

    def claim(self, key: str) -> bool:
        """Whether this run may decode the clip `key`, from now until it drops the claim.

        Look into the cache after winning one: its last owner may have sealed the clip.
        """
        try:
            (self._claims / key).symlink_to(self.run_id)
        except FileExistsError:
            # Our own too: a network file system may repeat a request that it had granted.
            return _owner(self._claims / key) == self.run_id
        return True

    def drop(self, key: str) -> None:
        """Let go of a claim, if it is still ours."""
        _drop(self._claims / key, self.run_id)

    def claimed(self) -> set[str]:
        """The clips that any run, this one too, has claimed."""
        return set(os.listdir(self._claims))

    def others(self) -> list[str]:
        """The other runs on this cache that are alive, each as its process and host."""
        self.remove_dead_runs()
        leases = (folder / _LEASE_FILE for folder in self._other_runs())
        return [str(process or lease.parent) for lease in leases for process, _ in [_read(lease)]]

    def remove_dead_runs(self) -> int:
        """Delete the drafts and drop the claims of dead runs; returns how many runs those were.

        Raises:
            LeaseLostError: if another run took this one for dead.
        """
        # Claims first: whoever is seen to own one had a folder before.
        claims = {path: _owner(path) for path in self._claims.iterdir()}
        now_ns = self._now_ns()
        dead = [run for run in self._other_runs() if _is_dead(run, now_ns, self._lease_s)]
        taken = sum(self._take_over(run) for run in dead)
        standing = self._standing()
        for path, owner in claims.items():
            if owner and owner not in standing:
                _drop(path, owner)
        return taken

    @property
    def _lease_file(self) -> Path:
        return self.drafts / _LEASE_FILE

    def _beat(self) -> None:
        while not self._ended.wait(HEARTBEAT_S):
            try:
                os.utime(self._lease_file)
            except FileNotFoundError:
                return  # `check` says so
            except OSError:
                continue  # the file system does not answer at the moment

    def _now_ns(self) -> int:
        """The time by the clock of the file system."""
        try:
            os.utime(self._lease_file)
            return self._lease_file.stat().st_mtime_ns
        except FileNotFoundError as error:
            raise LeaseLostError(str(self.drafts)) from error

    def _other_runs(self) -> list[Path]:
        runs = self.drafts.parent.iterdir()
        return [run for run in runs if run.name != self.run_id and run.is_dir()]

    def _take_over(self, run: Path) -> bool:
        """Delete a dead run; False if another run was first."""
        taken = self.drafts / f"{_TAKEN}{run.name}"
        try:
            run.rename(taken)
        except FileNotFoundError:
            return False
        shutil.rmtree(taken, ignore_errors=True)
        return True

    def _standing(self) -> set[str]:
        """Runs whose claims count: those with a folder, also while another run deletes it."""
        standing = {self.run_id}
        for run in self._other_runs():
            standing.add(run.name)
            standing |= {path.name.removeprefix(_TAKEN) for path in run.glob(f"{_TAKEN}*")}
        return standing


def _is_dead(run: Path, now_ns: int, lease_s: float) -> bool:
    process, beat_ns = _read(run / _LEASE_FILE)
    if process is not None and process.has_ended():
        return True
    return beat_ns is not None and now_ns - beat_ns > lease_s * 1e9


def _read(lease: Path) -> tuple[ProcessIdentity | None, int | None]:
    """The process of a lease and its last heartbeat; None for what cannot be known."""
    try:
        # Opened, because that asks the server where a mere stat may be answered from memory.
        with lease.open("rb") as file:
            return ProcessIdentity.from_json(file.read()), os.fstat(file.fileno()).st_mtime_ns
    except FileNotFoundError:
        pass
    try:  # a run that was killed while it began or ended
        return None, lease.parent.stat().st_mtime_ns
    except FileNotFoundError:
        return None, None


def _owner(claim: Path) -> str | None:
    try:
        return os.readlink(claim)
    except FileNotFoundError:
        return None


def _drop(claim: Path, owner: str) -> None:
    if _owner(claim) == owner:
        claim.unlink(missing_ok=True)
