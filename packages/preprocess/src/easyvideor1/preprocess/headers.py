"""Reads the headers of the media of clips, of a random sample where they are many.

What a header says of frames and size may differ from what the file holds; a plan can live with
that, `decode` cannot and scans the file. Used by `plan`.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from tqdm import tqdm

from easyvideor1.preprocess.cache_worker import ClipJob
from easyvideor1.preprocess.config import PreprocessConfig
from easyvideor1.preprocess.decode import media_name, probe
from easyvideor1.preprocess.decoders import decoder_for
from easyvideor1.preprocess.errors import DecodeError
from easyvideor1.preprocess.estimate import Group, Probed, clip_shape
from easyvideor1.schema.budget import Budgets
from easyvideor1.schema.records import MediaKind

PROBED_PER_GROUP = 1_000
"""Headers read of images and of videos each: enough to know a mean within a few percent."""
PROBING_THREADS = 16
"""Headers are small reads, slow one after another on a network file system."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Headers:
    """What was read of the media of some clips."""

    groups: tuple[Group, ...]
    probed: tuple[tuple[ClipJob, Probed], ...]
    """In a random order."""
    failures: tuple[tuple[str, str], ...]
    """Media without a readable header, with the reason."""


def read_headers(jobs: Sequence[ClipJob], config: PreprocessConfig, *, is_cached: bool) -> Headers:
    """Probe the media of clips, by kind and budget; of many, a random sample."""
    members: dict[tuple[MediaKind, bool], list[ClipJob]] = {}
    for job in sorted(jobs, key=lambda job: job.key):  # keys are hashes: a random order
        members.setdefault((job.media.kind, _is_validation(job, config.budget)), []).append(job)
    chosen = {of: group[:PROBED_PER_GROUP] for of, group in members.items()}
    groups: list[Group] = []
    probed: list[tuple[ClipJob, Probed]] = []
    failures: list[tuple[str, str]] = []
    with (
        ThreadPoolExecutor(PROBING_THREADS) as pool,
        tqdm(total=sum(map(len, chosen.values())), desc="reading headers", delay=1) as bar,
    ):
        for (kind, validation), sample in chosen.items():
            good: list[tuple[ClipJob, Probed]] = []
            outcomes = pool.map(lambda job: _probe(job, config), sample)
            for job, outcome in zip(sample, outcomes, strict=True):
                if isinstance(outcome, DecodeError):
                    failures.append((media_name(job.media), outcome.reason))
                else:
                    good.append((job, outcome))
                bar.update()
            groups.append(
                Group(
                    kind=kind,
                    validation=validation,
                    is_cached=is_cached,
                    count=len(members[kind, validation]),
                    probed=tuple(header for _, header in good),
                    num_unreadable=len(sample) - len(good),
                )
            )
            probed += good
    return Headers(groups=tuple(groups), probed=tuple(probed), failures=tuple(failures))


def _is_validation(job: ClipJob, budgets: Budgets) -> bool:
    """Whether only the budgets for validation ask for these frames."""
    return job.budget != budgets.of(job.media.kind.value)


def _probe(job: ClipJob, config: PreprocessConfig) -> Probed | DecodeError:
    try:
        source = probe(job.media, decoder_for(job.media, config.decode.decoder))
        probed = Probed(media=job.media, source=source)
        clip_shape(probed, job.budget, job.rules)
        return probed
    except DecodeError as error:
        return error
    except ValueError as error:
        return DecodeError(media_name(job.media), str(error))
