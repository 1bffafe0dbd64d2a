"""Dispatch to workers that misbehave on purpose: real actors, real leases, real cache files.

The workers write random clips in place of decoding, so that a test takes no time over frames.
"""

import json
import os
import signal
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from easyvideor1.preprocess import dispatch
from easyvideor1.preprocess.cache import open_cache
from easyvideor1.preprocess.cache_worker import CacheWorker, ClipJob, Outcome
from easyvideor1.preprocess.config import CacheConfig, CacheFormat, DecodeConfig, RayConfig
from easyvideor1.preprocess.decode_progress import DecodeProgress
from easyvideor1.preprocess.dispatch import Dispatcher, End, FinishedJob, max_frame_bytes
from easyvideor1.preprocess.errors import LeaseLostError
from easyvideor1.preprocess.frame_cache import FrameCache
from easyvideor1.preprocess.geometry import resize_shape
from easyvideor1.preprocess.lease import RunLease
from easyvideor1.preprocess.ray_session import ray_session
from easyvideor1.preprocess.rules import FamilyRules
from easyvideor1.preprocess.sampling import select_frames
from easyvideor1.schema.budget import Convention, FrameBudget
from easyvideor1.schema.errors import UserError
from easyvideor1.schema.records import Media, MediaKind
from tests.stored_clips import stored_clip

RULES = FamilyRules(name="qwen3_vl", patch_size=16, merge_size=2, temporal_patch_size=2)
BUDGET = FrameBudget(max_frames=4, max_pixels=64 * 96)


@pytest.fixture(scope="module", autouse=True)
def our_ray() -> Generator[None]:
    with ray_session(RayConfig(), num_cpus=4):
        yield


class RandomWorker(CacheWorker):
    """Writes `stored_clip(n)` for the path `n`; words in the path make it misbehave."""

    def cache(self, job: ClipJob) -> Outcome:
        behave(job.media.path)
        if job.media.path.startswith("broken"):
            return Outcome(problem="no frames")
        stored = stored_clip(job.settings["number"])
        self._write(stored)
        self._unsealed.append(job.key)
        return Outcome(num_bytes=stored.clip.frames.nbytes, sealed=self._newly_sealed())


def behave(path: str) -> None:
    """Paths: `slow …`, `kill once FILE`, `kill …`, `bug …`, `watched FOLDER COUNT`."""
    words = path.split()
    if words[0] == "slow":
        time.sleep(0.5)
    if words[:2] == ["kill", "once"]:
        marker = Path(words[2])
        if not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
    elif words[0] == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if words[0] == "bug":
        raise ZeroDivisionError("a fault of ours")
    if words[0] == "watched":
        log, at_once = Path(words[1]), int(words[2])
        began_s = time.time()
        (log / f"{uuid.uuid4().hex}.began").touch()
        while len(list(log.glob("*.began"))) < at_once:
            time.sleep(0.01)
        time.sleep(0.2)  # for one more than that to begin
        (log / f"{uuid.uuid4().hex}.json").write_text(json.dumps([began_s, time.time()]))


def jobs_of(*paths: str, budget: FrameBudget = BUDGET) -> list[ClipJob]:
    return [
        ClipJob(
            media=Media(kind=MediaKind.video, path=path),
            budget=budget,
            rules=RULES,
            settings={"number": number},
            key=stored_clip(number).clip.key,
        )
        for number, path in enumerate(paths)
    ]


class Setting:
    """A cache folder with what a dispatcher needs; arrow, so that clips stay unsealed a while."""

    def __init__(self, folder: Path):
        self.config = CacheConfig(dir=str(folder), format=CacheFormat.arrow)
        self.folder = folder
        self.problems: dict[str, str] = {}

    def cache(self) -> FrameCache:
        return open_cache(self.config)

    def start_worker(self, drafts: Path) -> Any:
        import ray

        actor = ray.remote(num_cpus=0)(RandomWorker)
        return actor.remote(self.config, DecodeConfig(), drafts, "")

    def dispatcher(
        self,
        jobs: Sequence[ClipJob],
        lease: RunLease,
        *,
        num_workers: int = 2,
        max_bytes: float = 1e9,
    ) -> Dispatcher:
        return Dispatcher(
            jobs,
            lease=lease,
            cache=self.cache(),
            quarantined=self.problems.get,
            start_worker=self.start_worker,
            num_workers=num_workers,
            max_bytes=max_bytes,
            progress=DecodeProgress(len(jobs), shown=False),
        )

    def run(self, jobs: Sequence[ClipJob], **options: Any) -> list[FinishedJob]:
        with RunLease(self.folder) as lease:
            finished = list(self.dispatcher(jobs, lease, **options))
        left = [path for name in ("runs", "claims") for path in (self.folder / name).iterdir()]
        assert not left, "a run that ends leaves neither drafts nor claims"
        assert sorted(one.job.key for one in finished) == sorted(job.key for job in jobs)
        return finished


@pytest.fixture
def setting(tmp_path: Path) -> Setting:
    return Setting(tmp_path / "cache")


def ends(finished: Sequence[FinishedJob]) -> Counter[End]:
    return Counter(one.end for one in finished)


def test_every_job_ends_once_and_what_is_decoded_can_be_read(setting: Setting) -> None:
    jobs = jobs_of(*["plain"] * 20, "broken", *["slow"] * 2)
    finished = setting.run(jobs)
    assert ends(finished) == {End.decoded: 22, End.failed: 1}
    (failed,) = [one for one in finished if one.end is End.failed]
    assert (failed.job.media.path, failed.problem) == ("broken", "no frames")
    assert set(setting.cache().keys()) == {job.key for job in jobs} - {failed.job.key}
    assert {one.num_bytes for one in finished} == {0, 4 * 3 * 64 * 96}


def test_a_job_over_which_a_worker_died_is_tried_again(setting: Setting, tmp_path: Path) -> None:
    jobs = jobs_of(*["plain"] * 9, f"kill once {tmp_path / 'marker'}", *["plain"] * 10)
    assert ends(setting.run(jobs)) == {End.decoded: 20}
    assert len(setting.cache().keys()) == 20, "also those the dead worker had not sealed"


def test_a_job_over_which_workers_keep_dying_is_set_aside(setting: Setting) -> None:
    jobs = jobs_of(*["plain"] * 9, "kill always", *["plain"] * 10)
    finished = setting.run(jobs)
    assert ends(finished) == {End.decoded: 19, End.failed: 1}
    (failed,) = [one for one in finished if one.end is End.failed]
    assert failed.job.media.path == "kill always"
    assert failed.problem.startswith("the worker process that decoded it died 2 times, ")


def test_where_no_worker_can_live_the_run_ends(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "MAX_DEATHS_IN_A_ROW", 3)
    with pytest.raises(UserError, match="3 decoding workers died one after another"):
        setting.run(jobs_of(*["kill always"] * 9), num_workers=1)


class UnableWorker(RandomWorker):
    def __init__(self, *arguments: Any):
        raise ZeroDivisionError("a fault of ours")


def test_a_worker_that_cannot_start_ends_the_run_with_its_reason(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[__name__], "RandomWorker", UnableWorker)
    with pytest.raises(RuntimeError, match=r"did not start: (.|\n)*a fault of ours"):
        setting.run(jobs_of("plain"))


def test_a_worker_that_dies_while_it_starts_is_replaced(
    setting: Setting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray

    marker = tmp_path / "marker"

    def start_worker(drafts: Path) -> Any:
        actor = setting_start(drafts)
        if not marker.exists():
            marker.touch()
            ray.kill(actor)
        return actor

    setting_start = setting.start_worker
    monkeypatch.setattr(setting, "start_worker", start_worker)
    assert ends(setting.run(jobs_of(*["plain"] * 3), num_workers=1)) == {End.decoded: 3}


def test_what_was_decoded_before_a_fault_is_sealed(setting: Setting) -> None:
    jobs = jobs_of("plain", "plain", "plain", "slow", "bug")
    with RunLease(setting.folder) as lease:
        # In the order given, on one worker, which then still holds an open shard.
        lease.run_id = "0"
        dispatcher = setting.dispatcher(jobs, lease, num_workers=1)
        with pytest.raises(Exception, match="a fault of ours"):
            list(dispatcher)
    assert set(setting.cache().keys()) == {job.key for job in jobs[:4]}


def overlaps(log: Path) -> int:
    """How many jobs were in work at once, at most."""
    spans = [json.loads(path.read_text()) for path in log.glob("*.json")]
    return max(sum(a <= start < b for a, b in spans) for start, _ in spans)


@pytest.mark.parametrize(("jobs_that_fit", "at_once"), [(0.5, 1), (1.0, 1), (2.5, 2), (9.0, 4)])
def test_the_bytes_in_flight_are_bounded(
    setting: Setting, tmp_path: Path, jobs_that_fit: float, at_once: int
) -> None:
    log = tmp_path / "log"
    log.mkdir()
    jobs = jobs_of(*[f"watched {log} {at_once}"] * 8)
    max_bytes = jobs_that_fit * max_frame_bytes(jobs[0])
    assert ends(setting.run(jobs, num_workers=4, max_bytes=max_bytes)) == {End.decoded: 8}
    assert overlaps(log) == at_once


@settings(deadline=None)
@given(data=st.data())
def test_no_clip_has_more_bytes_than_were_reckoned_with(data: st.DataObject) -> None:
    pick = data.draw
    name, patch_size = pick(st.sampled_from([("qwen3_vl", 16), ("qwen2_vl", 14)]))
    rules = FamilyRules(name=name, patch_size=patch_size, merge_size=2, temporal_patch_size=2)
    min_pixels = pick(st.integers(1, 100_000))
    min_frames = pick(st.integers(1, 8))
    budget = FrameBudget(
        fps=pick(st.sampled_from([0.5, 1.0, 2.0, 12.0])),
        min_frames=min_frames,
        max_frames=min_frames + pick(st.integers(0, 64)),
        min_pixels=min_pixels,
        max_pixels=min_pixels + pick(st.integers(0, 1_000_000)),
        total_pixels=pick(st.none() | st.integers(min_pixels, 10_000_000)),
        convention=pick(st.sampled_from(Convention)),
    )
    kind = pick(st.sampled_from(MediaKind))
    longer = pick(st.integers(1, 4_000))
    ratio = pick(st.floats(1.0, 200.0))
    size = (longer, max(1, round(longer / ratio)))
    height, width = size if pick(st.booleans()) else size[::-1]
    if max(size) > 200 * min(size):
        return
    num_frames = None
    if kind is MediaKind.video:
        selection = select_frames(
            total_frames=pick(st.integers(1, 10_000)),
            source_fps=pick(st.sampled_from([1.0, 24.0, 30000 / 1001])),
            budget=budget,
            rules=rules,
        )
        num_frames = len(selection.indices)
    rows, columns = resize_shape(height, width, num_frames=num_frames, budget=budget, rules=rules)
    media = Media(kind=kind, path="a")
    job = ClipJob(media=media, budget=budget, rules=rules, settings={}, key="")
    assert 3 * (num_frames or 1) * rows * columns <= max_frame_bytes(job)


def while_it_runs(change: Callable[[], None], when: Callable[[], bool]) -> threading.Thread:
    """Do `change` as soon as `when` holds, in a thread."""

    def watch() -> None:
        while not when():
            time.sleep(0.01)
        change()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    return thread


def seal_elsewhere(setting: Setting, lease: RunLease, numbers: Sequence[int]) -> None:
    """As another run does: first the clips, then the claims."""
    drafts = lease.drafts / "worker"
    drafts.mkdir()
    with setting.cache().writer(drafts) as writer:
        for number in numbers:
            writer.add(stored_clip(number))
    for number in numbers:
        lease.drop(stored_clip(number).clip.key)


def test_clips_of_another_run_are_waited_for_and_not_decoded_again(setting: Setting) -> None:
    jobs = jobs_of(*["plain"] * 6)
    with RunLease(setting.folder) as other, RunLease(setting.folder) as lease:
        for job in jobs[:3]:
            assert other.claim(job.key)
        # The others are sealed long before the last end, so that the two never wait in a circle.
        ours_sealed = lambda: len(open_cache(setting.config).keys()) == 3  # noqa: E731
        while_it_runs(lambda: seal_elsewhere(setting, other, [0, 1, 2]), ours_sealed)
        finished = list(setting.dispatcher(jobs, lease))
    assert ends(finished) == {End.decoded: 3, End.elsewhere: 3}
    assert {one.job.key for one in finished if one.end is End.elsewhere} == {
        job.key for job in jobs[:3]
    }


def test_what_another_run_gave_up_on_is_taken_over_and_what_failed_there_is_not(
    setting: Setting,
) -> None:
    jobs = jobs_of(*["plain"] * 4)
    given_up, failed = jobs[0].key, jobs[1].key
    with RunLease(setting.folder) as other, RunLease(setting.folder) as lease:
        assert other.claim(given_up) and other.claim(failed)

        def give_up() -> None:
            other.drop(given_up)
            setting.problems[failed] = "no video stream"
            other.drop(failed)

        while_it_runs(give_up, lambda: len(open_cache(setting.config).keys()) == 2)
        finished = list(setting.dispatcher(jobs, lease))
    assert ends(finished) == {End.decoded: 3, End.failed: 1}
    assert [one.problem for one in finished if one.end is End.failed] == ["no video stream"]


def test_the_claims_of_a_run_that_dies_meanwhile_are_taken_over(setting: Setting) -> None:
    jobs = jobs_of(*["plain"] * 4)
    dead = RunLease(setting.folder)
    dead.__enter__()
    dead._ended.set()  # no heartbeat any more
    assert dead.claim(jobs[0].key)
    with RunLease(setting.folder) as lease:

        def die() -> None:
            os.utime(dead.drafts / "lease.json", (0, 0))

        while_it_runs(die, lambda: len(open_cache(setting.config).keys()) == 3)
        finished = list(setting.dispatcher(jobs, lease))
    assert ends(finished) == {End.decoded: 4}
    assert not dead.drafts.exists()


def test_a_run_whose_lease_is_taken_over_ends_and_seals_nothing_more(setting: Setting) -> None:
    jobs = jobs_of(*["slow"] * 30)
    with RunLease(setting.folder) as lease:
        runs = setting.folder / "runs"
        while_it_runs(
            lambda: (runs / lease.run_id).rename(runs / "taken") and None,
            lambda: any(path.is_file() for path in runs.glob("*/*/*")),
        )
        with pytest.raises(LeaseLostError, match="another run took over"):
            list(setting.dispatcher(jobs, lease))
    assert setting.cache().keys() == []
