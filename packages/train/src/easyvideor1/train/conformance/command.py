"""The conformance command: write media, start a run's processes, check, print, keep the figures."""

from dataclasses import replace
from pathlib import Path

from easyvideor1.preprocess.config import CacheMode
from easyvideor1.schema.budget import Budgets, FrameBudget
from easyvideor1.schema.conf import resolve_output
from easyvideor1.schema.errors import UserError
from easyvideor1.train.config import TrainConfig
from easyvideor1.train.conformance import media
from easyvideor1.train.conformance.report import Check, table, write
from easyvideor1.train.interfaces import Prompt
from easyvideor1.train.preflight import installed_versions

MAX_NEW_TOKENS = 24
MAX_PROMPT_TOKENS = 4_096


def run(config: TrainConfig) -> None:
    """All checks on `model.path`.

    Raises:
        UserError: if one fails; the table and the report say which.
    """
    folder = resolve_output(config.output_dir) / "conformance"
    checks = all_checks(conformance_config(config, folder), folder)
    print(table(checks))
    report = folder / "report.json"
    write(report, checks, {"model": config.model.path, "versions": installed_versions()})
    failed = [check.name for check in checks if not check.ok]
    print(f"{len(checks) - len(failed)} of {len(checks)} checks hold; report: {report}")
    if failed:
        raise UserError(
            f"model.path={config.model.path}: {len(failed)} of {len(checks)} checks do not hold "
            f"({', '.join(failed[:5])}); training on it would be wrong. {report} has the figures"
        )


def conformance_config(config: TrainConfig, folder: Path) -> TrainConfig:
    """The run's own settings on small media, with a cache of its own."""
    small = FrameBudget(max_frames=8, min_pixels=64 * 64, max_pixels=128 * 128)
    return replace(
        config,
        budget=Budgets(image=small, video=small),
        cache=replace(config.cache, dir=str(folder / "cache"), mode=CacheMode.prefer),
        rollout=replace(
            config.rollout,
            max_new_tokens=MAX_NEW_TOKENS,
            max_prompt_tokens=MAX_PROMPT_TOKENS,
            temperature=1.0,
        ),
    )


def all_checks(config: TrainConfig, folder: Path) -> list[Check]:
    """Every check, in order."""
    from easyvideor1.evaluate.engine_args import compute_dtype
    from easyvideor1.preprocess.families import family_of
    from easyvideor1.rewards import instruction
    from easyvideor1.train.conformance.input_checks import check_inputs
    from easyvideor1.train.inputs import Prompter, open_store
    from easyvideor1.train.rollout import engine_config

    family = family_of(config.model)
    samples = media.write_samples(folder / "media")
    store = open_store(config, family, validation=False)
    prompter = Prompter(
        family=family, store=store, reward=config.reward, max_tokens=MAX_PROMPT_TOKENS
    )
    prompts = {name: prompter(sample) for name, sample in samples.items()}
    checks: list[Check] = []
    for name in media.CASES:
        sample = samples[name]
        told = instruction(sample, config.reward)
        checks += check_inputs(family, sample, told, store.load(sample))
    dtype = compute_dtype(engine_config(config, 0), family)
    return checks + policy_checks(config, folder, prompts, dtype)


def policy_checks(
    config: TrainConfig, folder: Path, prompts: dict[str, Prompt], dtype: str
) -> list[Check]:
    """The checks that need the processes of a run, whose engine computes in `dtype`."""
    from easyvideor1.train.conformance import policy_checks as policy
    from easyvideor1.train.processes import open_processes

    with open_processes(config, folder / "logs") as processes:
        processes.await_start()
        policies = policy.Policies.of(config, processes)
        tolerance = policy.TOLERANCE_NATS[dtype]
        sides: dict[str, policy.AnswerLogprobs] = {
            "engine": policies.engine_logprobs,
            "learner": policies.learner_logprobs,
        }
        checks = policy.check_log_probs(policies, prompts, tolerance, step=0, when="at first")
        (answer,) = policies.sampler.answer([prompts[media.ALTERED_CASE]])
        if answer is not None:
            checks += policy.check_video_is_used(prompts, answer, sides)
        return checks + policy.check_updates(policies, prompts, tolerance)
