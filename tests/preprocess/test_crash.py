"""A driver that is killed at any moment: its workers go, nothing sealed is lost, nothing is twice.

A watcher sees which run each file was written by before it was sealed, by inode, and when the run
lost its lease: nothing is sealed by a run that has been taken over.
"""

import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path

import pytest

from easyvideor1.preprocess.cache import open_cache
from easyvideor1.preprocess.config import CacheConfig
from easyvideor1.preprocess.dispatch import JOBS_PER_WORKER
from easyvideor1.preprocess.lease import LEASE_S
from easyvideor1.preprocess.process_identity import ProcessIdentity
from easyvideor1.preprocess.ray_session import FOLDERS
from tests.preprocess.preprocess_runs import MARK, Data, Run, command_of, marked, verify

GONE_AFTER_S = 10.0


class SealWatch(threading.Thread):
    """Remembers whose draft each sealed shard was, and when each run lost its folder."""

    def __init__(self, cache: Path):
        super().__init__(daemon=True)
        self._cache = cache
        self._ended = threading.Event()
        self.author: dict[int, str] = {}
        """Run id by inode; a later file of the same inode has another author."""
        self.lost_ns: dict[str, int] = {}
        """When a run was first seen without its folder."""

    def run(self) -> None:
        known: set[str] = set()
        while not self._ended.is_set():
            there = set()
            for folder in self._runs():
                there.add(folder.name)
                for inode in inodes_below(folder):
                    self.author[inode] = folder.name
            now_ns = time.time_ns()
            for run_id in known - there:
                self.lost_ns.setdefault(run_id, now_ns)
            known |= there
            time.sleep(0.002)

    def _runs(self) -> list[Path]:
        try:
            return [path for path in (self._cache / "runs").iterdir() if "-" not in path.name]
        except FileNotFoundError:
            return []

    def end(self) -> None:
        self._ended.set()
        self.join()

    def sealed_too_late(self) -> list[str]:
        """Shards that were sealed by a run after it had lost its lease."""
        shards = list((self._cache / "shards").glob("*.arrow"))
        seen = {shard: self.author.get(shard.stat().st_ino) for shard in shards}
        # A draft may come and go between two looks; its writer, which one run had, made others.
        by_writer = {writer_of(shard): author for shard, author in seen.items() if author}
        authors = {shard: by_writer.get(writer_of(shard)) for shard in shards}
        known = {shard: author for shard, author in authors.items() if author}
        assert len(known) > len(shards) / 2, "the watcher saw too little"
        now_ns = time.time_ns()
        return [
            f"{shard.name} by {author}"
            for shard, author in known.items()
            if shard.stat().st_ctime_ns > self.lost_ns.get(author, now_ns)
        ]


def writer_of(shard: Path) -> str:
    return shard.stem.partition("-")[0]


def inodes_below(run: Path) -> list[int]:
    found = []
    for worker in run.glob("*/"):
        try:
            found += [entry.inode() for entry in os.scandir(worker)]
        except (FileNotFoundError, NotADirectoryError):
            continue
    return found


def holds_lease(data: Data) -> bool:
    return any((data.cache / "runs").glob("*/lease.json"))


def kill_at(run: Run, data: Data, rng: random.Random, *, longest_s: float) -> bool:
    """Kill the driver at a random moment, mostly while it decodes; False if it ended before."""
    if rng.random() < 0.75:
        while not holds_lease(data) or data.num_decoded == run.decoded_before:
            if run.process.poll() is not None:
                return False
            time.sleep(0.01)
        time.sleep(rng.uniform(0.0, longest_s))
    else:
        time.sleep(rng.uniform(0.0, 10.0))
    ended = run.process.poll() is not None
    run.kill()
    return not ended


def kill_again_and_again(data: Data, *, kills: int, longest_s: float, seed: int) -> int:
    """Returns how many clips had survived when the last run began."""
    rng = random.Random(seed)
    watch = SealWatch(data.cache)
    watch.start()
    runs: list[Run] = []
    try:
        for number in range(kills):
            run = data.start("cache.shard_bytes=1500000")
            if runs and number % 2:  # this one began while the killed one's workers still lived
                assert not runs[-1].await_workers_gone(GONE_AFTER_S)
            runs.append(run)
            is_killed = kill_at(run, data, rng, longest_s=longest_s)
            assert is_killed, (run.process.returncode, run.process.stdout.read())
            if not (number + 1) % 2:
                assert not run.await_workers_gone(GONE_AFTER_S), "workers outlive their driver"
        sealed = len(open_cache(CacheConfig(dir=str(data.cache))).keys())
        last = data.start("cache.shard_bytes=1500000")
        runs.append(last)
        output = last.finish()
    finally:
        watch.end()
        for run in runs:
            run.end()
    found = re.search(r"(\d+) decoded, (\d+) reused, 0 failed in", output)
    assert found and int(found[1]) + int(found[2]) == data.num_clips, output
    assert int(found[2]) == sealed, "what was sealed is not decoded again"
    assert not watch.sealed_too_late()
    assert verify(data).startswith(f"{data.num_clips} clips in {data.cache} are intact")
    assert not list((data.cache / "runs").iterdir())
    assert not list((data.cache / "claims").iterdir())
    killed = {run.process.pid for run in runs}
    assert not killed & set(map(owner_of, FOLDERS.glob("evr-ray-*"))), "a Ray's folder stayed"
    return sealed


def owner_of(folder: Path) -> int | None:
    try:
        owner = ProcessIdentity.from_json((folder / "owner.json").read_bytes())
    except OSError:
        return None
    return owner.pid if owner else None


def test_a_run_killed_twice_is_completed_by_the_next(tiny_model_path: str, tmp_path: Path) -> None:
    data = Data(tmp_path, tiny_model_path, num_clips=12, num_frames=48)
    kill_again_and_again(data, kills=2, longest_s=0.1, seed=1)


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_a_run_killed_at_twenty_moments_is_completed_by_the_next(
    tiny_model_path: str, tmp_path: Path
) -> None:
    data = Data(tmp_path, tiny_model_path, num_clips=60, num_frames=240, height=360)
    survived = kill_again_and_again(data, kills=20, longest_s=2.0, seed=2)
    assert survived > 0, "nothing survived a kill"


@pytest.mark.slow
def test_a_kill_costs_no_more_than_the_open_shards(tiny_model_path: str, tmp_path: Path) -> None:
    data = Data(tmp_path, tiny_model_path, num_clips=40, num_frames=96)
    shard_bytes = 3_000_000
    run = data.start(f"cache.shard_bytes={shard_bytes}")
    try:
        while data.num_decoded < data.num_clips // 2:
            assert run.process.poll() is None
            time.sleep(0.02)
        run.kill()
        assert not run.await_workers_gone(GONE_AFTER_S)
    finally:
        run.end()
    before = data.num_decoded
    output = data.start(f"cache.shard_bytes={shard_bytes}").finish()
    found = re.search(r"(\d+) decoded, (\d+) reused, 0 failed in", output)
    assert found, output
    decoded, reused = int(found[1]), int(found[2])
    assert decoded + reused == data.num_clips
    assert data.num_decoded == before + decoded
    # For each of two workers: the clips of an open shard, and those on their way.
    clips_per_shard = shard_bytes // (96 * 3 * 96 * 128) + 1
    assert before - reused <= 2 * (clips_per_shard + JOBS_PER_WORKER)


CLUSTER = """
import sys
from easyvideor1.preprocess.config import RayConfig
from easyvideor1.preprocess.ray_session import ray_session

with ray_session(RayConfig(), num_cpus=2):
    import ray
    print(ray.get_runtime_context().gcs_address, flush=True)
    sys.stdin.read()
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_workers_on_a_cluster_go_with_their_driver_and_the_cluster_stays(
    tiny_model_path: str, tmp_path: Path
) -> None:
    data = Data(tmp_path, tiny_model_path, num_clips=12, num_frames=240, height=240)
    mark = uuid.uuid4().hex
    cluster = subprocess.Popen(
        [sys.executable, "-c", CLUSTER],
        env={**os.environ, MARK: mark},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    runs: list[Run] = []
    try:
        assert cluster.stdout is not None
        address = cluster.stdout.readline().strip()

        def decoders() -> list[int]:
            """Each is the child of one worker, wherever the driver is."""
            return [pid for pid in marked(mark) if b"decode_child" in command_of(pid)]

        runs.append(data.start(f"ray.address={address}"))
        while data.num_decoded < 2:
            assert runs[0].process.poll() is None
            time.sleep(0.01)
        assert decoders()
        runs[0].kill()
        deadline_s = time.monotonic() + GONE_AFTER_S
        while decoders() and time.monotonic() < deadline_s:
            time.sleep(0.1)
        assert not decoders(), "workers outlive their driver"
        runs.append(data.start(f"ray.address={address}"))
        assert re.search(r"\d+ decoded, \d+ reused, 0 failed in", runs[1].finish())
        assert cluster.poll() is None, "a cluster that was joined is left running"
    finally:
        for run in runs:
            run.end()
        cluster.communicate(timeout=60)
    assert verify(data).startswith(f"{data.num_clips} clips in {data.cache} are intact")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_stalled_run_that_was_taken_over_seals_nothing_once_it_goes_on(
    tiny_model_path: str, tmp_path: Path
) -> None:
    data = Data(tmp_path, tiny_model_path, num_clips=20, num_frames=240, height=360)
    watch = SealWatch(data.cache)
    watch.start()
    stalled = data.start("cache.shard_bytes=3000000")
    heir: Run | None = None
    try:
        while data.num_decoded < 4:
            assert stalled.process.poll() is None
            time.sleep(0.01)
        # Its workers too: they stop in the middle of a clip, with shards open.
        halted = [stalled.process.pid, *stalled.workers()]
        for pid in halted:
            os.kill(pid, signal.SIGSTOP)
        (lease_file,) = (data.cache / "runs").glob("*/lease.json")
        long_ago_s = lease_file.stat().st_mtime - LEASE_S - 1
        os.utime(lease_file, (long_ago_s, long_ago_s))
        heir = data.start("cache.shard_bytes=3000000")
        while lease_file.exists():
            assert heir.process.poll() is None
            time.sleep(0.01)
        for pid in halted:
            os.kill(pid, signal.SIGCONT)
        output, _ = stalled.process.communicate(timeout=200)
        assert stalled.process.returncode == 2
        assert "another run took over; this one's unsealed clips are dropped" in output
        assert not stalled.await_workers_gone(GONE_AFTER_S)
        heir.finish()
    finally:
        watch.end()
        for run in filter(None, (stalled, heir)):
            run.end()
    assert not watch.sealed_too_late()
    assert verify(data).startswith(f"{data.num_clips} clips in {data.cache} are intact")
