"""What `algorithm=<name>` composes to, beside what its paper says, and what is refused by name."""

import dataclasses
import math
import subprocess
import sys
from typing import Any

import pytest

from easyvideor1.rewards import RewardConfig
from easyvideor1.rewards.penalties import overlong
from easyvideor1.schema.conf import compose, conf_dir
from easyvideor1.schema.errors import UserError
from easyvideor1.train.algorithm_config import AlgorithmConfig, KlPlace, OfflineTreatment
from easyvideor1.train.config import MixingMode, TrainConfig, register

PAPERS: dict[str, dict[str, Any]] = {
    # arXiv 2402.03300, equations 3 and 21. Its KL (0.04) is an option, see the recipe.
    "grpo": {
        "advantage.name": "grpo",
        "objective.name": "clip",
        "objective.ratio_range": (1 - 0.2, 1 + 0.2),
        "aggregation": "sequence_mean",
    },
    # arXiv 2503.14476, section 4.1 and equations 8 to 13.
    "dapo": {
        "advantage.name": "grpo",
        "objective.name": "clip",
        "objective.ratio_range": (1 - 0.2, 1 + 0.28),
        "aggregation": "token_mean",
        "dynamic_sampling.enabled": True,
        "dynamic_sampling.key": "accuracy",
    },
    # arXiv 2503.20783, section 3.2: no division by the deviation, none by the length.
    "dr_grpo": {
        "advantage.name": "group_mean",
        "objective.name": "clip",
        "objective.ratio_range": (1 - 0.2, 1 + 0.2),
        "aggregation": "constant",
        "constant_length": None,
    },
    # arXiv 2507.18071, equations 5 to 7 and section 5.1.
    "gspo": {
        "advantage.name": "grpo",
        "objective.name": "gspo",
        "objective.ratio_range": (1 - 3e-4, 1 + 4e-4),
        "aggregation": "sequence_mean",
    },
    # The same, equations 13 and 14.
    "gspo_token": {
        "advantage.name": "grpo",
        "objective.name": "gspo_token",
        "objective.ratio_range": (1 - 3e-4, 1 + 4e-4),
        "aggregation": "sequence_mean",
    },
    # arXiv 2506.13585, equations 4 and 5; the bound is that of arXiv 2510.13786.
    "cispo": {
        "advantage.name": "grpo",
        "objective.name": "cispo",
        "objective.ratio_range": (0.0, 5.0),
        "aggregation": "token_mean",
    },
    # arXiv 2511.20347.
    "sapo": {
        "advantage.name": "grpo",
        "objective.name": "sapo",
        "objective.gate_positive": 1.0,
        "objective.gate_negative": 1.05,
        "aggregation": "sequence_mean",
    },
    # arXiv 2501.03262, equations 8 to 10: k1 in the reward of every token.
    "reinforce_pp": {
        "advantage.name": "reinforce_pp",
        "advantage.discount": 1.0,
        "objective.name": "clip",
        "objective.ratio_range": (1 - 0.2, 1 + 0.2),
        "aggregation": "token_mean",
        "kl.place": "reward",
        "kl.estimator": "k1",
        "kl.coefficient": 0.01,
        "kl.controller": "fixed",
    },
    "reinforce_pp_baseline": {
        "advantage.name": "reinforce_pp_baseline",
        "objective.name": "clip",
        "objective.ratio_range": (1 - 0.2, 1 + 0.2),
        "aggregation": "token_mean",
    },
    # arXiv 2310.10505, equation 5: the sum over the tokens of an answer.
    "remax": {
        "advantage.name": "remax",
        "objective.name": "clip",
        "aggregation": "constant",
        "constant_length": None,
    },
    # arXiv 2402.14740, section 3.3: the same.
    "rloo": {
        "advantage.name": "rloo",
        "objective.name": "clip",
        "aggregation": "constant",
        "constant_length": None,
    },
    # arXiv 2601.05242, equations 4 to 6.
    "gdpo": {
        "advantage.name": "gdpo",
        "advantage.keys": {"accuracy": 1.0, "format": 1.0},
        "advantage.whiten": "sequence",
        "objective.name": "clip",
        "objective.ratio_range": (1 - 0.2, 1 + 0.2),
        "aggregation": "token_mean",
    },
    # arXiv 2512.03043.
    "ema_grpo": {
        "advantage.name": "ema_grpo",
        "advantage.ema_decay": 0.99,
        "objective.name": "clip",
        "objective.ratio_range": (1 - 0.2, 1 + 0.2),
        "aggregation": "sequence_mean",
    },
    # arXiv 2503.21776, section 3.2: bonus 0.3, 8 answers in order and 4 shuffled.
    "t_grpo": {
        "advantage.name": "t_grpo",
        "advantage.control_size": None,
        "advantage.control_bonus": 0.3,
        "advantage.control_factor": 1.0,
        "objective.name": "clip",
        "objective.ratio_range": (1 - 0.2, 1 + 0.2),
        "aggregation": "sequence_mean",
    },
    # arXiv 2504.14945, and exp_scripts/train.sh of its code.
    "luffy": {
        "advantage.name": "group_mean",
        "objective.name": "unclipped",
        "aggregation": "constant",
        "constant_length": None,
        "entropy_bonus": 0.001,
        "offline.treatment": "luffy",
        "offline.gamma": 0.1,
        "offline.in_baseline": True,
        "offline.behaviour_logprobs": False,
    },
    # arXiv 2508.11408, and examples/mix_chord/mix_chord.yaml of Trinity-RFT.
    "chord": {
        "advantage.name": "grpo",
        "objective.name": "clip",
        "objective.ratio_range": (1 - 0.2, 1 + 0.2),
        "aggregation": "token_mean",
        "offline.treatment": "chord",
        "offline.in_baseline": False,
        "offline.mu_peak": 0.9,
        "offline.mu_valley": 0.05,
        "offline.mu_warmup_updates": 0,
        "offline.mu_decay_updates": 200,
        "offline.phi": False,
    },
    "chord_phi": {
        "advantage.name": "grpo",
        "objective.name": "clip",
        "aggregation": "token_mean",
        "offline.treatment": "chord",
        "offline.in_baseline": False,
        "offline.mu_peak": 0.1,
        "offline.mu_valley": 0.1,
        "offline.phi": True,
        "offline.phi_detach": True,
    },
}
MIXING = {"luffy": MixingMode.replace, "chord": MixingMode.append, "chord_phi": MixingMode.append}
REWARDS = sorted(path.stem for path in (conf_dir() / "reward").glob("*.yaml"))


def composed(*overrides: str) -> TrainConfig:
    register()
    return compose("train", list(overrides), TrainConfig)


def value_at(config: AlgorithmConfig, name: str) -> Any:
    value: Any = config
    for part in name.split("."):
        value = getattr(value, part)
    return value


def test_every_recipe_has_its_paper_here() -> None:
    recipes = {path.stem for path in (conf_dir() / "algorithm").glob("*.yaml")}
    assert recipes == PAPERS.keys()


@pytest.mark.parametrize("name", PAPERS)
def test_a_name_means_what_its_paper_means(name: str) -> None:
    algorithm = composed(f"algorithm={name}").algorithm
    assert algorithm.name == name
    assert {key: value_at(algorithm, key) for key in PAPERS[name]} == PAPERS[name]


@pytest.mark.parametrize("name", PAPERS)
def test_what_a_recipe_does_not_name_is_off(name: str) -> None:
    algorithm = composed(f"algorithm={name}").algorithm
    assert algorithm.dynamic_sampling.enabled == (name == "dapo")
    assert (algorithm.kl.place is not KlPlace.none) == (name == "reinforce_pp")
    assert not algorithm.correction.is_on
    assert (algorithm.entropy_bonus == 0) == (name != "luffy")
    assert algorithm.objective.dual_clip is None
    is_plain = algorithm.offline.treatment is OfflineTreatment.as_policy
    assert is_plain == (name not in MIXING)


@pytest.mark.parametrize("name", PAPERS)
def test_a_recipe_for_offline_answers_sets_their_mixing_and_the_command_line_another(
    name: str,
) -> None:
    config = composed(f"algorithm={name}")
    assert config.mixing.mode is MIXING.get(name, MixingMode.none)
    assert config.learner.updates_per_rollout == (2 if name == "luffy" else 1)
    assert composed(f"algorithm={name}", "mixing=gated").mixing.mode is MixingMode.gated
    if name in MIXING:
        with pytest.raises(UserError, match="mixing=none has none"):
            composed(f"algorithm={name}", "mixing=none")


def test_the_recipe_of_the_demo_is_the_default() -> None:
    config = composed("experiment=demo_cpu")
    assert config.algorithm == composed("experiment=demo_cpu", "algorithm=grpo").algorithm
    assert config.output_dir == "outputs/demo_cpu/grpo-seed0"


@pytest.mark.parametrize("name", PAPERS)
def test_every_recipe_goes_with_the_demo_and_mixed_groups(name: str) -> None:
    config = composed("experiment=demo_cpu", f"algorithm={name}", "train.steps=3")
    assert config.output_dir == f"outputs/demo_cpu/{name}-seed0"


@pytest.mark.parametrize("name", ["remax", "reinforce_pp"])
def test_recipes_whose_baseline_is_no_group_take_one_answer_per_prompt(name: str) -> None:
    assert composed(f"algorithm={name}", "rollout.group_size=1").rollout.group_size == 1


# DAPO's penalty for long answers


@pytest.mark.parametrize("reward", REWARDS)
@pytest.mark.parametrize("max_new_tokens", [1, 2, 48, 4_096, 20_480])
def test_dapo_shapes_the_longest_answers_whatever_the_reward(
    reward: str, max_new_tokens: int
) -> None:
    config = composed(
        "algorithm=dapo", f"reward={reward}", f"rollout.max_new_tokens={max_new_tokens}"
    )
    shaping, plain = config.reward.overlong, composed(f"reward={reward}").reward
    assert shaping.max_tokens == max_new_tokens
    assert overlong(max_new_tokens, shaping) == -0.5
    assert overlong(int(0.8 * max_new_tokens), shaping) == 0
    rest = dataclasses.replace(config.reward, overlong=plain.overlong)
    assert rest == plain, "nothing else of the reward changes"


def test_the_paper_and_dapo_agree_on_its_own_lengths() -> None:
    """L_max = 20,480, L_cache = 4,096; rewards of -1 and 1 are twice as far apart as 0 and 1."""
    shaping = composed("algorithm=dapo", "rollout.max_new_tokens=20480").reward.overlong
    assert (shaping.buffer, shaping.weight * 2) == (4_096, 1.0)


def test_the_command_line_goes_before_the_recipe() -> None:
    config = composed("algorithm=dapo", "reward.overlong.max_tokens=null")
    assert config.reward.overlong.max_tokens is None
    config = composed("algorithm=dapo", "algorithm.dynamic_sampling.max_draws=3")
    assert config.algorithm.dynamic_sampling.max_draws == 3


def test_recipes_but_dapo_leave_the_reward_alone() -> None:
    for name in PAPERS.keys() - {"dapo"}:
        assert composed(f"algorithm={name}").reward == RewardConfig()


@pytest.mark.parametrize("recipe", ["grpo", "gspo", "cispo", "sapo", "ema_grpo"])
@pytest.mark.parametrize(
    ("objective", "expected"),
    [
        ("clip", (1 - 0.2, 1 + 0.2)),
        ("gspo", (1 - 3e-4, 1 + 4e-4)),
        ("gspo_token", (1 - 3e-4, 1 + 4e-4)),
        ("cispo", (0.0, 5.0)),
        ("sapo", (0.0, math.inf)),
        ("unclipped", (0.0, math.inf)),
    ],
)
def test_an_objective_brings_its_papers_bounds_to_another_recipe(
    recipe: str, objective: str, expected: tuple[float, float]
) -> None:
    config = composed(
        f"algorithm={recipe}",
        f"algorithm.objective.name={objective}",
        "algorithm.aggregation=sequence_mean",
    )
    assert config.algorithm.objective.ratio_range == expected


def test_a_bound_that_is_named_goes_before_the_papers() -> None:
    objective = composed("algorithm=cispo", "algorithm.objective.clip_low=0.2").algorithm.objective
    assert objective.ratio_range == (0.8, 5.0)
    objective = composed("algorithm=gspo", "algorithm.objective.clip_high=5e-4").algorithm.objective
    assert objective.ratio_range == (1 - 3e-4, 1 + 5e-4)


def test_the_keys_of_gdpo_are_added_to_and_taken_from() -> None:
    def keys(*overrides: str) -> dict[str, float]:
        return composed("algorithm=gdpo", *overrides).algorithm.advantage.keys

    assert keys("+algorithm.advantage.keys.repetition=1", "reward.repetition.weight=0.1") == {
        "accuracy": 1.0,
        "format": 1.0,
        "repetition": 1.0,
    }
    assert keys("~algorithm.advantage.keys.format") == {"accuracy": 1.0}
    assert composed("algorithm=grpo").algorithm.advantage.keys == {}


# Refusals

APPENDED = [
    "algorithm=grpo",
    "mixing=append",
    "mixing.num_offline=2",
    "rollout.batch_size=4",
    "rollout.group_size=4",
    "algorithm.kl.place=loss",
    "algorithm.kl.controller=adaptive",
]
REFUSED = {
    "a baseline of others": (["algorithm=rloo", "rollout.group_size=1"], "at least 2"),
    "dynamic sampling of single answers": (
        ["algorithm=remax", "rollout.group_size=1", "algorithm.dynamic_sampling.enabled=true"],
        "would always be drawn again",
    ),
    "more of k than there are": (
        ["algorithm.advantage.name=pass_at_k", "rollout.group_size=2"],
        "=4",
    ),
    "gspo over tokens": (
        ["algorithm=gspo", "algorithm.aggregation=token_mean"],
        "gspo_token takes",
    ),
    "gspo by token": (
        [
            "algorithm=reinforce_pp",
            "algorithm.objective.name=gspo",
            "algorithm.aggregation=sequence_mean",
        ],
        "take gspo_token",
    ),
    "a dual clip of gspo": (
        ["algorithm=gspo", "algorithm.objective.dual_clip=3"],
        "set it to null",
    ),
    "a bound of sapo": (
        ["algorithm=sapo", "algorithm.objective.clip_high=0.2"],
        "clip_low=None and clip_high=0.2; set both to null",
    ),
    "dapo's bound with sapo": (
        ["algorithm=dapo", "algorithm.objective.name=sapo"],
        "set both to null",
    ),
    "gdpo of nothing": (
        ["algorithm=grpo", "algorithm.advantage.name=gdpo"],
        "+algorithm.advantage.keys.NAME=1",
    ),
    "gdpo without weights": (
        [
            "algorithm=gdpo",
            "algorithm.advantage.keys.accuracy=0",
            "algorithm.advantage.keys.format=0",
        ],
        "whose weight is not 0",
    ),
    "a length penalty that gdpo does not see": (
        ["algorithm=gdpo", "reward=dapo"],
        "+algorithm.advantage.keys.overlong=1), or set reward.overlong.max_tokens=null",
    ),
    "a repetition penalty that gdpo does not see": (
        ["algorithm=gdpo", "reward.repetition.weight=0.1"],
        "+algorithm.advantage.keys.repetition=1), or set reward.repetition.weight=0",
    ),
    "a weightless kl of gdpo": (
        ["algorithm=gdpo", "algorithm.kl.place=reward", "+algorithm.advantage.keys.kl=0"],
        "~algorithm.advantage.keys.kl",
    ),
    "an adaptive kl of gdpo": (
        [
            "algorithm=gdpo",
            "algorithm.kl.place=reward",
            "algorithm.kl.controller=adaptive",
            "+algorithm.advantage.keys.kl=1",
        ],
        "cancels the coefficient",
    ),
    "an adaptive kl that is nowhere": (
        ["algorithm=grpo", "algorithm.kl.controller=adaptive"],
        "algorithm.kl.place=loss or reward",
    ),
    "k1 in the loss": (
        ["algorithm=grpo", "algorithm.kl.place=loss", "algorithm.kl.estimator=k1"],
        "take k2, k3 or full",
    ),
    "a horizon of sampled answers alone": (
        # 4 prompts with 4 sampled and 2 offline answers: 0.2 x 24 = 4.8
        [*APPENDED, "algorithm.kl.horizon=4"],
        "horizon=4 is too short for the 24 completions",
    ),
    "kl beside gdpo": (
        ["algorithm=gdpo", "algorithm.kl.place=reward"],
        "+algorithm.advantage.keys.kl=1",
    ),
    "a part that is off": (
        ["algorithm=gdpo", "+algorithm.advantage.keys.overlong=1"],
        "it has accuracy, format",
    ),
    "a part that is not there": (
        ["algorithm=dapo", "algorithm.dynamic_sampling.key=tools"],
        "names 'tools', which is no part of this reward; it has accuracy, format, overlong",
    ),
    "no draws": (["algorithm.dynamic_sampling.max_draws=0"], "at least 1"),
    **{
        f"{setting} with a correction": (
            [f"rollout.{setting}", f"algorithm.correction.{kind}"],
            f"algorithm.correction cannot go with rollout.{setting}",
        )
        for setting, kind in [
            ("top_p=0.9", "weight=token"),
            ("top_k=50", "reject=token"),
            ("min_p=0.1", "weight=sequence"),
            ("presence_penalty=0.5", "reject=sequence"),
            ("repetition_penalty=1.1", "weight=token"),
        ]
    },
    **{
        setting: ([f"rollout.{setting}"], "rollout needs")
        for setting in (
            "top_p=0",
            "top_k=0",
            "min_p=2",
            "presence_penalty=3",
            "repetition_penalty=0",
        )
    },
}


@pytest.mark.parametrize(("overrides", "expected"), REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_be_is_refused_with_the_way_out(overrides: list[str], expected: str) -> None:
    with pytest.raises(UserError) as error:
        composed(*overrides)
    assert expected in str(error.value)


@pytest.mark.parametrize(
    "overrides",
    [
        ["algorithm=gdpo", "algorithm.kl.place=reward", "+algorithm.advantage.keys.kl=1"],
        ["algorithm=gdpo", "reward=dapo", "+algorithm.advantage.keys.overlong=1"],
        ["algorithm=dapo", "algorithm.objective.name=sapo", "algorithm.objective.clip_high=null"],
        [*APPENDED, "algorithm.kl.horizon=5"],
        ["algorithm=grpo", "algorithm.kl.place=reward", "algorithm.kl.estimator=k1"],
        ["algorithm=dapo", "rollout.top_p=0.9"],
        ["algorithm=dapo", "algorithm.correction.weight=token", "rollout.temperature=0.9"],
        ["algorithm=dapo", "reward.function=mine.py:score", "algorithm.dynamic_sampling.key=mine"],
    ],
    ids=" ".join,
)
def test_what_resembles_it_and_can_be_is_taken(overrides: list[str]) -> None:
    composed(*overrides)


COMMAND = """
import sys
sys.argv = ["evr-train", *sys.argv[1:]]
from easyvideor1.train.cli import main
main()
"""
NO_CRITIC = "there is no critic; use algorithm=grpo (the baseline is the group)"


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("algorithm=ppo", [NO_CRITIC, "Could not find 'algorithm/ppo'"]),
        ("algorithm.advantage.name=gae", [NO_CRITIC, "takes one of grpo, group_mean, rloo"]),
        ("learner.critic=true", [NO_CRITIC, "learner.critic=true is not there"]),
        ("algorithm=grpoo", ["cispo dapo dr_grpo ema_grpo gdpo grpo gspo gspo_token"]),
        ("algorithm.objective.name=clipp", ["takes one of clip, gspo, gspo_token, cispo, sapo"]),
        ("algorithm.clip_high=0.3", ["algorithm.objective.clip_high"]),
    ],
)
def test_names_that_are_not_there_are_refused_in_one_paragraph(
    override: str, expected: list[str]
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", COMMAND, override], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 2
    (paragraph,) = done.stderr.strip().splitlines()[-1:]
    assert paragraph.startswith("evr-train: ")
    assert all(words in paragraph for words in expected), paragraph
