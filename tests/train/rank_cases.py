"""What two ranks do in `test_learner_ranks`, each in a process of its own."""

import multiprocessing
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from easyvideor1.train.algorithm_config import AlgorithmConfig, KlConfig, KlEstimator, KlPlace
from easyvideor1.train.config import BatchLayout, FrozenPart, LoraConfig, OptimizerConfig
from easyvideor1.train.interfaces import TrainExample
from easyvideor1.train.learner import RankLearner
from easyvideor1.train.network import free_port
from easyvideor1.train.sharding import join_process_group
from tests.train.policy_cases import (
    family_at,
    gradients_of,
    group,
    make_learner,
    trainable_learner,
    without_memory,
)

SHARES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "image / text": (("image",), ("text",)),
    "text / video": (("text",), ("video",)),
    "image and video / image": (("image and video",), ("image",)),
    "text / text": (("text",), ("other text",)),
    "video / nothing": (("video",), ()),
    "three groups / one": (("text", "image and video", "other video"), ("other text",)),
}
"""Kinds of prompts on rank 0 and on rank 1."""

VARIANTS: dict[str, dict] = {
    "activation_checkpointing": {"activation_checkpointing": True},
    "vision frozen": {"freeze": [FrozenPart.vision, FrozenPart.merger]},
    "only the merger trained": {"freeze": [FrozenPart.vision, FrozenPart.language]},
    "only the tower trained": {"freeze": [FrozenPart.merger, FrozenPart.language]},
    "language frozen and recomputed": {
        "freeze": [FrozenPart.language],
        "activation_checkpointing": True,
    },
    "a copy per rank": {"shard_size": 1, "ranks": 2},
    "bfloat16": {"dtype": "bfloat16"},
}
"""Of the learner, each on the shares `image / text`."""

SMALL_BATCHES = 120
"""Tokens: the last of these shares is then several micro-batches against one."""


def share_of(model_path: Path, names: tuple[str, ...]) -> list[TrainExample]:
    family = family_at(model_path)
    return [e for name in names for e in group(family, name, (5, 9, 2), seed=len(name))]


DEADLINE_S = 240


def run_ranks(
    work: Callable[..., None], models: Path | dict[str, Path], folder: Path, *, num_ranks: int
) -> None:
    """Runs `work` in as many processes; one that waits for the others for ever is a failure.

    They are forked from a server that has imported torch and transformers, or vLLM with both for
    the engines of the session.
    """
    multiprocessing.set_forkserver_preload([__name__])
    args = (free_port("127.0.0.1"), models, folder)
    context = mp.start_processes(
        work, args=args, nprocs=num_ranks, join=False, start_method="forkserver"
    )
    assert context is not None  # since it need not join
    deadline = time.monotonic() + DEADLINE_S
    try:
        while not context.join(timeout=5):
            assert time.monotonic() < deadline, "a rank waits in a collective for the other"
    finally:
        for process in context.processes:
            process.kill()


def run_rank(rank: int, port: int, model_path: Path, folder: Path) -> None:
    """Writes what this rank saw to `folder/rank<rank>.pt`."""
    torch.set_num_threads(1)
    join_process_group(rank=rank, world_size=2, host="127.0.0.1", port=port, timeout_s=120)
    results = {
        "gradients": _gradients(rank, model_path),
        "variants": {
            name: gradients_of(
                make_learner(model_path, **fields),
                share_of(model_path, SHARES["image / text"][rank]),
            )
            for name, fields in VARIANTS.items()
        },
        "weights": dict(make_learner(model_path, ranks=2).gather_weights()),
        **_with_a_copy_per_rank(rank, model_path, folder),
        "logprobs": make_learner(model_path).logprobs(
            share_of(model_path, SHARES["image / text"][rank])
        ),
        **_save_and_continue(rank, model_path, folder),
    }
    torch.save(results, folder / f"rank{rank}.pt")
    dist.destroy_process_group()


SHARED_ON_RANKS = ("qwen3_5", "qwen3_vl")
SHARED_SHARES = (("image and video", "text"), ("other text",))
"""Kinds of prompts on rank 0 and on rank 1."""


def shared_share(model_path: Path, names: tuple[str, ...]) -> list[TrainExample]:
    """Groups with answers of unequal lengths."""
    family = family_at(model_path)
    return [e for name in names for e in group(family, name, (3, 66, 20), seed=len(name))]


def run_shared_prefix(rank: int, port: int, model_paths: dict[str, Path], folder: Path) -> None:
    """Writes each family's gradients, of prompts computed once, to `folder/shared<rank>.pt`."""
    torch.set_num_threads(1)
    join_process_group(rank=rank, world_size=2, host="127.0.0.1", port=port, timeout_s=120)
    seen = {
        name: gradients_of(
            make_learner(path, layout=BatchLayout.shared_prefix, micro_batch_tokens=300),
            shared_share(path, SHARED_SHARES[rank]),
        )
        for name, path in model_paths.items()
    }
    torch.save(seen, folder / f"shared{rank}.pt")
    dist.destroy_process_group()


BFLOAT16_FAMILIES = ("qwen2_5_vl", "qwen3_5")


def run_in_bfloat16(rank: int, port: int, model_paths: dict[str, Path], folder: Path) -> None:
    """One rank in a process group; writes what it saw of each family to `folder/results.pt`."""
    torch.set_num_threads(1)
    join_process_group(rank=rank, world_size=1, host="127.0.0.1", port=port, timeout_s=120)
    results = {name: _seen_in_bfloat16(path) for name, path in model_paths.items()}
    torch.save(results, folder / "results.pt")
    dist.destroy_process_group()


def _seen_in_bfloat16(model_path: Path) -> dict:
    learner = make_learner(model_path, dtype="bfloat16", optimizer=OptimizerConfig(lr=1e-6))
    examples = group(family_at(model_path), "image and video", (5, 9))
    computed_in = set()
    model = learner.model.hf.model
    layers = [model.language_model.layers[0], model.visual.blocks[0]]
    hooks = [
        # Before the layer computes: after it, FSDP has put its own share back in place.
        layer.register_forward_pre_hook(
            lambda module, args: computed_in.update({p.dtype for p in module.parameters()})
        )
        for layer in layers
    ]
    gradients, _ = gradients_of(learner, examples)
    for hook in hooks:
        hook.remove()
    before = {name: value.clone() for name, value in learner.gather_weights()}
    learner.update(examples)
    after = dict(learner.gather_weights())
    return {
        "computed_in": computed_in,
        "kept_in": {value.dtype for value in after.values()},
        "gradients": gradients,
        "largest_step": max((after[name] - before[name]).abs().max().item() for name in after),
    }


def _gradients(rank: int, model_path: Path) -> dict:
    learner = make_learner(model_path, micro_batch_tokens=SMALL_BATCHES)
    return {
        name: gradients_of(learner, share_of(model_path, shares[rank]))
        for name, shares in SHARES.items()
    }


def updates(rank: int, model_path: Path) -> list[list[TrainExample]]:
    """This rank's share of four updates."""
    return [share_of(model_path, shares[rank]) for shares in list(SHARES.values())[:4]]


def _save_and_continue(rank: int, model_path: Path, folder: Path) -> dict:
    """Two updates, save, two more; and the last two again in a fresh learner that loads."""
    steps = updates(rank, model_path)
    straight = trainable_learner(model_path)
    metrics = [without_memory(straight.update(step)) for step in steps[:2]]
    straight.save(folder / "checkpoint")
    straight.begin_save(folder / "meanwhile")
    saved = {"weights": full_weights(straight), "moments": full_moments(straight)}
    saved_random = torch.get_rng_state()
    metrics += [without_memory(straight.update(step)) for step in steps[2:]]
    straight.finish_save()
    torch.manual_seed(99)

    from_meanwhile = trainable_learner(model_path)
    from_meanwhile.load(folder / "meanwhile")
    resumed = trainable_learner(model_path)
    resumed.load(folder / "checkpoint")
    meanwhile_is_equal = same_state(from_meanwhile, resumed)
    random_is_restored = torch.equal(torch.get_rng_state(), saved_random)
    resumed_metrics = [without_memory(resumed.update(step)) for step in steps[2:]]
    resumed.export(folder / "export")
    return {
        "metrics": metrics,
        "resumed_metrics": resumed_metrics,
        "saved": saved,
        "meanwhile_is_equal": meanwhile_is_equal,
        "said_bytes": straight.checkpoint_bytes(),
        "random_is_restored": random_is_restored,
        "state_is_equal": same_state(straight, resumed),
        "final_weights": dict(resumed.gather_weights()),
    }


def _with_a_copy_per_rank(rank: int, model_path: Path, folder: Path) -> dict:
    """Two updates under hybrid sharding, saved and continued by ranks that share one copy."""
    steps = updates(rank, model_path)
    copies = trainable_learner(model_path, ranks=2, shard_size=1)
    metrics = [without_memory(copies.update(step)) for step in steps[:2]]
    copies.save(folder / "copies")
    copies.export(folder / "copies_export")
    continued = trainable_learner(model_path, ranks=2)
    continued.load(folder / "copies")
    metrics += [without_memory(continued.update(step)) for step in steps[2:]]
    return {
        "copies_metrics": metrics,
        "copies_local_shapes": [tuple(_local(p).shape) for p in copies.model.parameters()],
        "copies_final_weights": dict(continued.gather_weights()),
    }


FOUR_SHARES = (("image",), ("text",), ("image and video",), ("other text", "video"))
"""Kinds of prompts on each of four ranks."""


def run_one_of_four(rank: int, port: int, model_path: Path, folder: Path) -> None:
    """Two copies of the weights, each on two of four ranks; writes to `folder/four<rank>.pt`."""
    torch.set_num_threads(1)
    join_process_group(rank=rank, world_size=4, host="127.0.0.1", port=port, timeout_s=120)
    mine = share_of(model_path, FOUR_SHARES[rank])
    gradients, metrics = gradients_of(make_learner(model_path, ranks=4, shard_size=2), mine)
    learner = trainable_learner(model_path, ranks=4, shard_size=2)
    results = {
        "gradients": gradients,
        "metrics": metrics,
        "updates": [without_memory(learner.update(mine)) for _ in range(2)],
        "weights": dict(learner.gather_weights()),
    }
    learner.save(folder / "four")
    torch.save(results, folder / f"four{rank}.pt")
    dist.destroy_process_group()


def adapted_learner(
    model_path: Path, estimator: KlEstimator, seed: int = 7, **fields: object
) -> RankLearner:
    """With adapters in every part, and a reference that the loss pulls to."""
    torch.manual_seed(seed)
    return trainable_learner(
        model_path,
        lora=LoraConfig(rank=4, alpha=8, parts=list(FrozenPart)),
        algorithm=AlgorithmConfig(kl=KlConfig(place=KlPlace.loss, estimator=estimator)),
        optimizer=OptimizerConfig(lr=1e-2, eps=1e-3, weight_decay=0.1),
        **fields,
    )


def adapted_gradients(
    model_path: Path, examples: list[TrainExample], estimator: KlEstimator, **fields: object
) -> tuple[dict[str, torch.Tensor], dict[str, float]]:
    """Gradients and metrics of the second update."""
    learner = adapted_learner(model_path, estimator, **fields)
    learner.update(examples, kl_coefficient=0.1)
    return gradients_of(learner, examples, kl_coefficient=0.1)


def run_with_adapters(rank: int, port: int, model_path: Path, folder: Path) -> None:
    """One of two ranks; writes what it saw to `folder/rank<rank>.pt`."""
    torch.set_num_threads(1)
    join_process_group(rank=rank, world_size=2, host="127.0.0.1", port=port, timeout_s=120)
    mine = share_of(model_path, SHARES["image / text"][rank])
    results: dict = {
        "gradients": {
            KlEstimator.k3: adapted_gradients(
                model_path, mine, KlEstimator.k3, activation_checkpointing=True
            ),
            KlEstimator.full: adapted_gradients(model_path, mine, KlEstimator.full),
        }
    }
    # The random halves of the adapters are those of rank 0, whatever the others draw.
    learner = adapted_learner(model_path, KlEstimator.k3, seed=7 + rank)
    for _ in range(2):
        learner.update(mine, kl_coefficient=0.1)
    learner.save(folder / "checkpoint")
    results["said_bytes"] = learner.checkpoint_bytes()
    learner.update(mine, kl_coefficient=0.1)
    results["weights"] = full_weights(learner)
    torch.save(results, folder / f"rank{rank}.pt")
    dist.destroy_process_group()


def same_state(one: RankLearner, other: RankLearner) -> bool:
    """Whether weights and optimizer are equal to the last bit, on this rank's share."""
    pairs = zip(one.model.parameters(), other.model.parameters(), strict=True)
    for mine, theirs in pairs:
        if not torch.equal(_local(mine), _local(theirs)):
            return False
        moments, their_moments = one.optimizer.state[mine], other.optimizer.state[theirs]
        if moments.keys() != their_moments.keys() or not moments:
            return False
        if not all(torch.equal(_local(moments[k]), _local(their_moments[k])) for k in moments):
            return False
    return one.num_updates == other.num_updates


def full_weights(learner: RankLearner) -> dict[str, torch.Tensor]:
    """Copies of the weights by name."""
    return {name: value.clone() for name, value in learner.gather_weights()}


def full_moments(learner: RankLearner) -> dict[str, torch.Tensor]:
    """Copies of what the optimizer holds for each weight, by the weight's name and its own."""
    moments = {}
    for name, parameter in learner.model.named_parameters():
        for kind, value in learner.optimizer.state[parameter].items():
            whole = value.full_tensor() if hasattr(value, "full_tensor") else value
            moments[f"{name}/{kind}"] = whole.clone()
    return moments


def _local(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor
