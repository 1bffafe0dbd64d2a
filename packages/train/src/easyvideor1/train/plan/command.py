"""The plan command: tokens, memory and disk of a run as tables and JSON, and what cannot fit.

Reads the config, the model's configuration and the headers of the media. Nothing is decoded, loaded
or started.
"""

import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from easyvideor1.preprocess.families import family_of
from easyvideor1.schema import environment
from easyvideor1.schema.codec import to_plain
from easyvideor1.schema.conf import resolve_output
from easyvideor1.schema.errors import UserError
from easyvideor1.schema.files import write_json
from easyvideor1.schema.records import Sample
from easyvideor1.train.config import TrainConfig
from easyvideor1.train.disk_space import run_bytes
from easyvideor1.train.inputs import Inputs
from easyvideor1.train.placement import Seat
from easyvideor1.train.plan import activations, engine_memory, learner_memory
from easyvideor1.train.plan.engine_memory import KvCache
from easyvideor1.train.plan.learner_memory import MicroBatch, ModelSizes, Part
from easyvideor1.train.plan.samples import DataSizes, measure, percentile
from easyvideor1.train.preflight import available_memory, shared_bytes_of
from easyvideor1.train.sharding import computation_dtype

if TYPE_CHECKING:
    import torch

GB = 10**9


@dataclass(frozen=True, kw_only=True, slots=True)
class Tokens:
    """Of prompts and of a step."""

    prompt_p50: float
    prompt_p95: float
    prompt_max: float
    media_share: float
    """Of all prompt tokens."""
    answer_max: int
    step_sequences: float
    """Of all answers of a step, each with a mean prompt; answers as long as they may be."""
    step_computed: float
    """Of them, those that the learner computes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Need:
    """What one place has to hold, and what it can."""

    name: str
    parts: list[Part]
    available_bytes: float | None
    """None where nothing limits it."""
    way_out: str

    @property
    def num_bytes(self) -> float:
        return sum(part.num_bytes for part in self.parts)

    @property
    def fits(self) -> bool:
        return self.available_bytes is None or self.num_bytes <= self.available_bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """All that the command tells."""

    tokens: Tokens
    num_samples: int
    num_left_out: int
    micro_batch: MicroBatch
    kv_cache: KvCache
    needs: list[Need]

    def as_dict(self) -> dict[str, Any]:
        """As `plan.json` holds it."""
        needs = [
            asdict(need) | {"num_bytes": need.num_bytes, "fits": need.fits} for need in self.needs
        ]
        return to_plain(self) | {"needs": needs}


def run(config: TrainConfig, *, train: Sequence[Sample], validation: Sequence[Sample]) -> Plan:
    """Plan, print, and write `plan.json` into the run's folder.

    Raises:
        UserError: for what cannot fit, with the way out for each.
    """
    found = plan(config, train=train, validation=validation)
    folder = resolve_output(config.output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "plan.json", found.as_dict())
    print(told(found, config))
    print(f"written to {folder / 'plan.json'}")
    refusals = [
        f"{need.name} needs {_gb(need.num_bytes)} and has {_gb(need.available_bytes or 0)}: "
        f"{need.way_out}"
        for need in found.needs
        if not need.fits
    ]
    if refusals:
        raise UserError("this run does not fit. " + " ".join(refusals))
    return found


def plan(config: TrainConfig, *, train: Sequence[Sample], validation: Sequence[Sample]) -> Plan:
    """What a run will take."""
    family = family_of(config.model)
    inputs = Inputs(config, family)
    left_out = inputs.left_out("data", validation=False)
    data = measure(train, inputs.prompter(validation=False), left_out)
    held_out = measure(
        validation,
        inputs.prompter(validation=True),
        inputs.left_out("validation", validation=True),
    )
    dtype = computation_dtype(config.model.dtype, _device(config))
    sizes = learner_memory.model_sizes(config)
    costs = activations.measure(config.model.path, config.learner, dtype)
    batch = learner_memory.largest_micro_batch(
        data.prompts, config, patch_tokens=sizes.patch_tokens, costs=costs
    )
    lengths = [prompt.num_tokens for prompt in data.prompts]
    kv = engine_memory.kv_cache(config, percentile(lengths, 0.95), dtype)
    has_group = config.learner.ranks > 1 or _on_gpu(config)
    rank = learner_memory.rank_parts(config, sizes, costs, batch, dtype=dtype, has_group=has_group)
    engine = engine_memory.engine_parts(config, sizes, dtype, on_gpu=_on_gpu(config))
    return Plan(
        tokens=_tokens(config, data, merge=family.rules.merge_size),
        num_samples=len(train),
        num_left_out=left_out.count,
        micro_batch=batch,
        kv_cache=kv,
        needs=[
            *_device_needs(config, rank, engine, kv),
            _host(config, rank, engine, kv, sizes, data),
            _shared_memory(config),
            _disk(config, sizes, data, held_out),
        ],
    )


def _tokens(config: TrainConfig, data: DataSizes, *, merge: int) -> Tokens:
    rollout = config.rollout
    lengths = [prompt.num_tokens for prompt in data.prompts]
    total = sum(lengths)
    mean = total / max(1, len(lengths))
    answers = rollout.batch_size * rollout.group_size * rollout.max_new_tokens
    shares = config.learner.layout.shares_prompts
    prompts_computed = rollout.batch_size * (1 if shares else rollout.group_size)
    return Tokens(
        prompt_p50=percentile(lengths, 0.5),
        prompt_p95=percentile(lengths, 0.95),
        prompt_max=percentile(lengths, 1.0),
        media_share=sum(p.num_patches for p in data.prompts) / merge**2 / max(1, total),
        answer_max=rollout.max_new_tokens,
        step_sequences=rollout.batch_size * rollout.group_size * mean + answers,
        step_computed=prompts_computed * mean + answers,
    )


# Places


def _on_gpu(config: TrainConfig) -> bool:
    return config.plan.gpu_gb is not None or environment.has_nvidia_gpu()


def _device(config: TrainConfig) -> "torch.device":
    import torch

    return torch.device("cuda" if _on_gpu(config) else "cpu")


def _gpu_bytes(config: TrainConfig) -> float:
    if config.plan.gpu_gb is not None:
        return config.plan.gpu_gb * GB
    import torch

    return float(torch.cuda.get_device_properties(0).total_memory)


LEARNER_WAY_OUT = (
    "lower learner.micro_batch_tokens or budget.video, set learner.activation_checkpointing=true, "
    "train adapters (learner=lora) or fewer parts (learner.freeze), or share the weights among "
    "more learner.ranks."
)
ENGINE_WAY_OUT = (
    "raise rollout.engine.tensor_parallel_size, or lower rollout.max_prompt_tokens, "
    "rollout.max_new_tokens or rollout.engine.encoder_cache_tokens."
)


def _device_needs(
    config: TrainConfig, rank: list[Part], engine: list[Part], kv: KvCache
) -> list[Need]:
    """GPUs; without them everything lies in host memory."""
    if not _on_gpu(config):
        return []
    gpu_bytes = _gpu_bytes(config)
    share = config.rollout.engine.gpu_memory_utilization
    one_request = Part(name="KV cache of one request", num_bytes=kv.longest_bytes)
    return [
        Need(
            name="GPU of a learner rank",
            parts=rank,
            available_bytes=gpu_bytes,
            way_out=LEARNER_WAY_OUT,
        ),
        Need(
            name="GPU of an engine",
            parts=[*engine, one_request],
            available_bytes=gpu_bytes * share,
            way_out=ENGINE_WAY_OUT,
        ),
    ]


OFFLOADED = ("weights", "optimizer", "reference")
"""Parts of a rank that give way to an engine on the same GPU."""


def _host(
    config: TrainConfig,
    rank: list[Part],
    engine: list[Part],
    kv: KvCache,
    sizes: ModelSizes,
    data: DataSizes,
) -> Need:
    """Host memory of all processes."""
    learner, rollout = config.learner, config.rollout
    whole = 4.0 * sizes.base_weights
    parts = []
    if _on_gpu(config):
        # Each rank loads the checkpoint before it keeps its share. Later, where an engine takes
        # turns with it, its own lies here during a rollout.
        loading = Part(name="loading the model", num_bytes=learner.ranks * whole)
        own = sum(part.num_bytes for part in rank if part.name in OFFLOADED)
        away = Part(name="learner's during rollouts", num_bytes=learner.ranks * own)
        larger = away.num_bytes > loading.num_bytes
        parts.append(away if rollout.colocated and larger else loading)
    else:
        parts += [
            Part(name=f"ranks, {p.name}", num_bytes=learner.ranks * p.num_bytes) for p in rank
        ]
        parts += [
            Part(name=f"engines, {p.name}", num_bytes=rollout.engines * p.num_bytes) for p in engine
        ]
        held = rollout.engines * rollout.engine.kv_cache_bytes
        parts.append(Part(name="engines, KV cache", num_bytes=held))
    if learner.async_save:
        copy = sizes.checkpoint.weights + sizes.checkpoint.training
        parts.append(Part(name="copy that is being saved", num_bytes=copy))
    bucket = min(whole, rollout.publish_bucket_mb * 1024**2)
    per_rank = -(-rollout.batch_size // learner.ranks)
    clips = learner.ranks * per_rank * data.largest_clips_bytes
    parts += [
        Part(name="weights under way", num_bytes=bucket),
        Part(name="clips of an update", num_bytes=clips),
    ]
    if not config.ray.address:
        parts.append(Part(name="object store", num_bytes=config.ray.object_store_mb * 1024**2))
    available = config.plan.host_gb * GB if config.plan.host_gb else float(available_memory())
    return Need(name="host memory", parts=parts, available_bytes=available, way_out=LEARNER_WAY_OUT)


def _shared_memory(config: TrainConfig) -> Need:
    seats = [Seat("engine", index) for index in range(config.rollout.engines)]
    needed = float(shared_bytes_of(config, seats))
    return Need(
        name="shared memory",
        parts=[Part(name="object store and media", num_bytes=needed)],
        available_bytes=float(shutil.disk_usage("/dev/shm").free),
        way_out="enlarge /dev/shm (docker run --shm-size=8g), or lower ray.object_store_mb.",
    )


def _disk(config: TrainConfig, sizes: ModelSizes, data: DataSizes, held_out: DataSizes) -> Need:
    missing = data.missing_clip_bytes + held_out.missing_clip_bytes
    return Need(
        name="disk",
        parts=[
            Part(name="clips that the cache lacks", num_bytes=missing),
            Part(name="checkpoints and export", num_bytes=run_bytes(config, sizes.checkpoint)),
        ],
        available_bytes=_free_bytes(config),
        way_out="free space, lower learner.keep_last or keep_best, or set cache.codec or budget.",
    )


def _free_bytes(config: TrainConfig) -> float:
    """Where the run writes; the cache may lie elsewhere, and is then counted here all the same."""
    if config.plan.disk_gb is not None:
        return config.plan.disk_gb * GB
    folder = Path(resolve_output(config.output_dir))
    there = next(path for path in (folder, *folder.parents) if path.is_dir())
    return float(shutil.disk_usage(there).free)


# Telling


def told(found: Plan, config: TrainConfig) -> str:
    """The tables."""
    tokens = found.tokens
    rows = [
        ("prompt, p50 / p95 / max", f"{tokens.prompt_p50:,.0f} / {tokens.prompt_p95:,.0f} / "
         f"{tokens.prompt_max:,.0f}"),
        ("of them media", f"{tokens.media_share:.0%}"),
        ("answer, at most", f"{tokens.answer_max:,}"),
        ("a step's sequences", f"{tokens.step_sequences:,.0f}"),
        ("computed by the learner", f"{tokens.step_computed:,.0f}"),
        ("largest micro-batch", f"{found.micro_batch.num_tokens:,.0f} and "
         f"{found.micro_batch.num_patches:,.0f} patches"),
    ]  # fmt: skip
    lines = [
        f"samples: {found.num_samples - found.num_left_out} of {found.num_samples} will be asked"
    ]
    lines += _table("tokens", rows)
    for need in found.needs:
        rows = [(part.name, _gb(part.num_bytes)) for part in need.parts]
        verdict = "" if need.fits else "  does not fit"
        limit = "" if need.available_bytes is None else f" of {_gb(need.available_bytes)}"
        lines += _table(need.name, [*rows, ("together", f"{_gb(need.num_bytes)}{limit}{verdict}")])
    kv = found.kv_cache
    lines.append(
        f"KV cache of an engine: {_gb(kv.needed_bytes)} for what it is asked at once, "
        f"{_gb(kv.longest_bytes)} for one request of {kv.longest_tokens:,} tokens"
    )
    return "\n".join(lines)


def _table(title: str, rows: Sequence[tuple[str, str]]) -> list[str]:
    return [title, *(f"  {name:32} {value}" for name, value in rows)]


def _gb(num_bytes: float) -> str:
    return f"{num_bytes / GB:,.2f} GB"
