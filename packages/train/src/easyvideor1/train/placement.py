"""On which nodes engines and learner ranks run: one Ray placement group holds all of them.

What has to be on one node is reserved as one bundle: an engine and a rank that take turns on a GPU,
or rank 0 and the engines where weights pass through host memory. Called by `processes`.
"""

import math
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

from easyvideor1.schema import environment
from easyvideor1.schema.errors import UserError
from easyvideor1.train.config import TrainConfig, WeightTransferName
from easyvideor1.train.publishing import chosen_transfer

CPU_SHARE = 0.001
"""Cores that an actor reserves. Two cores are to be enough for any number of them, but a bundle of
nothing is refused by Ray."""


class Seat(NamedTuple):
    """An actor that needs a place, e.g. `Seat("rank", 0)`."""

    kind: str
    """`engine` or `rank`."""
    index: int

    def __str__(self) -> str:
        return f"{self.kind} {self.index}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Bundle:
    """Seats on one node, and what they need together."""

    seats: tuple[Seat, ...]
    gpus: float

    @property
    def resources(self) -> dict[str, float]:
        """As Ray takes it."""
        return {"CPU": CPU_SHARE * len(self.seats)} | ({"GPU": self.gpus} if self.gpus else {})


@dataclass(frozen=True, kw_only=True, slots=True)
class Placement:
    """Reserved places for the actors of a run."""

    group: Any
    """The placement group of Ray."""
    bundles: tuple[Bundle, ...]
    nodes: tuple[str, ...]
    """Node id of each bundle."""
    addresses: dict[str, str]
    """Of each of those nodes, for people."""
    gpus: dict[str, float]
    """By kind of seat."""
    is_local: bool
    """Whether Ray is our own, on this machine alone."""

    def options(self, kind: str, index: int) -> dict[str, Any]:
        """What `ray.remote(...).options` takes for this actor."""
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        seat = Seat(kind, index)
        number = next(i for i, bundle in enumerate(self.bundles) if seat in bundle.seats)
        strategy = PlacementGroupSchedulingStrategy(self.group, placement_group_bundle_index=number)
        return {
            "num_cpus": CPU_SHARE,
            "num_gpus": self.gpus[kind],
            "scheduling_strategy": strategy,
        }

    def seats_on(self, node: str) -> list[Seat]:
        """The actors that run on a node."""
        return [
            seat
            for bundle, its_node in zip(self.bundles, self.nodes, strict=True)
            if its_node == node
            for seat in bundle.seats
        ]

    def __str__(self) -> str:
        """Example: `10.0.0.1: engine 0, rank 0; 10.0.0.2: rank 1`."""
        return "; ".join(
            f"{self.addresses[node]}: {', '.join(map(str, self.seats_on(node)))}"
            for node in dict.fromkeys(self.nodes)
        )


@contextmanager
def reserve(config: TrainConfig) -> Generator[Placement]:
    """Places for all actors of a run; what still runs in them ends with the block.

    Raises:
        UserError: if the cluster has no place for them within `ray.placement_timeout_s`; it names
            what is asked for and what is there.
    """
    import ray
    from ray.util import placement_group, placement_group_table, remove_placement_group

    gpus = gpu_shares(config)
    bundles = bundles_of(config, gpus)
    if config.ray.address is None and _gpus(b.resources for b in bundles) > _gpus(
        [ray.cluster_resources()]
    ):
        raise UserError(_lacking(bundles, "this machine has no place for them"))
    group = placement_group([bundle.resources for bundle in bundles], strategy=_strategy(config))
    try:
        limit = config.ray.placement_timeout_s
        if not group.wait(limit):
            raise UserError(_lacking(bundles, f"after {limit:g} s there is no place for them"))
        by_bundle = placement_group_table(group)["bundles_to_node_id"]
        nodes = tuple(by_bundle[index] for index in range(len(bundles)))
        is_local = config.ray.address is None
        addresses = {
            node["NodeID"]: "this machine" if is_local else node["NodeManagerAddress"]
            for node in ray.nodes()
        }
        yield Placement(
            group=group,
            bundles=tuple(bundles),
            nodes=nodes,
            addresses={node: addresses[node] for node in nodes},
            gpus=gpus,
            is_local=is_local,
        )
    finally:
        remove_placement_group(group)


def gpu_shares(config: TrainConfig) -> dict[str, float]:
    """GPUs that an engine and a rank reserve, by the config or by what this machine has."""
    engine_gpus, rank_gpus = config.ray.engine_gpus, config.ray.rank_gpus
    per_gpu = 0.0
    if environment.has_nvidia_gpu():
        per_gpu = 0.5 if config.rollout.colocated else 1.0
    if engine_gpus is None:
        engine_gpus = config.rollout.engine.tensor_parallel_size * per_gpu
    if rank_gpus is None:
        rank_gpus = per_gpu
    return {"engine": engine_gpus, "rank": rank_gpus}


def bundles_of(config: TrainConfig, gpus: Mapping[str, float]) -> list[Bundle]:
    """Which actors share a node, and how many GPUs they need there."""
    engines = [Seat("engine", index) for index in range(config.rollout.engines)]
    ranks = [Seat("rank", index) for index in range(config.learner.ranks)]
    if config.rollout.colocated:
        # Fractions alone would not do: two engines might find themselves on one GPU.
        together = [list(pair) for pair in zip(engines, ranks, strict=True)]
    elif _through_host_memory(config):
        together = [[*engines, ranks[0]], *([rank] for rank in ranks[1:])]
    else:
        together = [[seat] for seat in (*ranks, *engines)]
    return [
        Bundle(seats=tuple(seats), gpus=_whole(sum(gpus[seat.kind] for seat in seats)))
        for seats in together
    ]


def _strategy(config: TrainConfig) -> str:
    """Of the placement group, in the words of Ray."""
    if config.rollout.colocated and _through_host_memory(config):
        return "STRICT_PACK"
    return config.ray.placement.value.upper()


def _through_host_memory(config: TrainConfig) -> bool:
    return chosen_transfer(config) is WeightTransferName.shared_memory


def _whole(gpus: float) -> float:
    """Ray takes a part of one GPU, but of several only whole ones."""
    return math.ceil(gpus) if gpus > 1 else gpus


def _gpus(resources: Iterable[Mapping[str, float]]) -> float:
    return sum(one.get("GPU", 0) for one in resources)


def _lacking(bundles: Sequence[Bundle], outcome: str) -> str:
    import ray

    needs = ", ".join(f"{b.gpus:g} GPUs for {' and '.join(map(str, b.seats))}" for b in bundles)
    nodes = ", ".join(
        f"{node['NodeManagerAddress']} with {node['Resources'].get('GPU', 0):g} GPUs and "
        f"{node['Resources'].get('CPU', 0):g} cores"
        for node in ray.nodes()
        if node["Alive"]
    )
    return (
        f"engines and ranks need {needs}, each on one node, but {outcome}: there is {nodes}; "
        f"{_gpus([ray.available_resources()]):g} GPUs are free in all. Lower learner.ranks, "
        "rollout.engines or rollout.engine.tensor_parallel_size, let actors share GPUs by "
        "ray.rank_gpus and ray.engine_gpus, or add nodes and raise ray.placement_timeout_s"
    )
