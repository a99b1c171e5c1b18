"""Flags that several verbs have, written once. Names are vLLM's where vLLM has them."""

import re
from pathlib import Path
from typing import Annotated, Final

import typer

from splitserve.engine.device import DEFAULTS
from splitserve.errors import ConfigError
from splitserve.launch import topology
from splitserve.launch.sizes import ByteSize, parse_size

WORKER: Final = topology.WorkerGroup()
MODEL: Final = topology.ModelAsked(name="")
GATEWAY: Final = topology.GatewayAsked()


def _choice(words: tuple[str, ...]) -> str:
    return "|".join(words)


def _by_device(size: str) -> str:
    """The defaults of ``size`` as help shows them."""
    return ", ".join(f"{getattr(sizes, size)} on {kind}" for kind, sizes in DEFAULTS.items())


Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="A name known to `splitserve pull` (smollm2), a Hugging Face folder, a .gguf file or "
        "a hub id.",
        show_default=False,
    ),
]

# What a model is.
Dtype = Annotated[
    str,
    typer.Option("--dtype", metavar=_choice(topology.DTYPES), help="Of weights and KV cache."),
]
MaxModelLen = Annotated[
    int | None,
    typer.Option(
        "--max-model-len",
        metavar="TOKENS",
        help="Longest prompt and answer together.",
        show_default="the model's own",
    ),
]
BlockSize = Annotated[
    int, typer.Option("--block-size", metavar="TOKENS", help="Tokens in one KV block.")
]
LoadFormat = Annotated[
    str,
    typer.Option(
        "--load-format",
        metavar=_choice(topology.LOAD_FORMATS),
        help="auto reads the model's weights, dummy makes random ones.",
    ),
]
Seed = Annotated[int, typer.Option("--seed", metavar="N", help="Of dummy weights.")]
ServedModelName = Annotated[
    str | None,
    typer.Option(
        "--served-model-name",
        metavar="NAME",
        help="What clients call the model.",
        show_default="MODEL as given",
    ),
]

# What a worker is.
Engine = Annotated[
    str,
    typer.Option(
        "--engine",
        metavar=_choice(topology.ENGINES),
        help="native computes; fake only takes the time that you set.",
    ),
]
AnyEngine = Annotated[
    str,
    typer.Option(
        "--engine",
        metavar=_choice((*topology.ENGINES, topology.VLLM)),
        help="native computes; vllm starts vLLM (`splitserve up` has all its settings); fake only "
        "takes the time that you set.",
    ),
]
Device = Annotated[
    str,
    typer.Option(
        "--device",
        metavar=_choice(topology.DEVICES),
        help="Where to compute; with cuda each worker takes a GPU of its own.",
    ),
]
OneDevice = Annotated[
    str,
    typer.Option(
        "--device",
        metavar="cpu|cuda|cuda:N",
        help="Where to compute; cuda is the first GPU.",
    ),
]
TensorParallelSize = Annotated[
    int,
    typer.Option(
        "--tensor-parallel-size",
        metavar="N",
        help="Shards of a worker's model, by its heads: GPUs of a vLLM worker; of a native one, on "
        "the CPU only, KV pools of one process, to try unlike splits (it gets no faster).",
    ),
]
Connector = Annotated[
    str,
    typer.Option(
        "--connector",
        metavar=_choice(topology.CONNECTORS),
        help="How KV moves from prefill to decode; auto: shm on cpu, cuda_ipc on cuda.",
    ),
]
KVCacheMemory = Annotated[
    str | None,
    typer.Option(
        "--kv-cache-memory-bytes",
        metavar="SIZE",
        help="KV cache of each worker: bytes, or with a unit as in 512MiB.",
        show_default="1GiB on cpu, what is free on cuda",
    ),
]
GpuMemoryUtilization = Annotated[
    float,
    typer.Option(
        "--gpu-memory-utilization",
        metavar="SHARE",
        help="Share of its GPU's memory that a worker may use in all; the KV cache takes what "
        "weights leave, unless --kv-cache-memory-bytes is given.",
    ),
]
MaxNumSeqs = Annotated[
    int | None,
    typer.Option(
        "--max-num-seqs",
        metavar="N",
        help="Requests in one worker's batch.",
        show_default=_by_device("max_num_seqs"),
    ),
]
MaxNumBatchedTokens = Annotated[
    int | None,
    typer.Option(
        "--max-num-batched-tokens",
        metavar="N",
        help="Tokens of one step; longer prompts are computed in chunks.",
        show_default=_by_device("max_num_batched_tokens"),
    ),
]
PrefixCaching = Annotated[
    bool,
    typer.Option(
        "--enable-prefix-caching/--no-enable-prefix-caching",
        help="Keep the KV of prompts for later prompts that begin alike.",
    ),
]
KVTierMemory = Annotated[
    str | None,
    typer.Option(
        "--kv-tier-memory-bytes",
        metavar="SIZE",
        help="Keep KV behind the prefix caches in the host's memory, up to this size for all its "
        "workers together.",
        show_default="none is kept",
    ),
]
KVTierDiskPath = Annotated[
    Path | None,
    typer.Option(
        "--kv-tier-disk-path",
        metavar="DIR",
        help="Keep it on a local disk too, in this folder; with --kv-tier-disk-bytes.",
        show_default="none is kept",
    ),
]
KVTierDisk = Annotated[
    str | None,
    typer.Option(
        "--kv-tier-disk-bytes",
        metavar="SIZE",
        help="Size of what the folder holds, for all workers that share it together.",
        show_default=False,
    ),
]

# What a gateway is.
Host = Annotated[str, typer.Option("--host", metavar="ADDRESS", help="Address the API listens on.")]
Port = Annotated[
    int, typer.Option("--port", metavar="PORT", help="Port the API listens on; 0 takes a free one.")
]
PolicyName = Annotated[
    str,
    typer.Option(
        "--policy", metavar=_choice(topology.POLICIES), help="Which worker takes a request."
    ),
]
RequestTimeout = Annotated[
    float,
    typer.Option("--request-timeout-s", metavar="SECONDS", help="Longest a request may take."),
]
TtftDeadline = Annotated[
    float,
    typer.Option(
        "--ttft-deadline-s",
        metavar="SECONDS",
        help="Refuse at once (429) what would wait longer than this for its first token.",
    ),
]
MaxQueued = Annotated[
    int,
    typer.Option("--max-queued", metavar="N", help="Most requests that wait for room."),
]
ToolCallParser = Annotated[
    str,
    typer.Option(
        "--tool-call-parser",
        metavar="NAME",
        help="Reads tool calls: a vLLM name, auto (what the chat template asks for) or none.",
    ),
]
ReasoningParser = Annotated[
    str,
    typer.Option(
        "--reasoning-parser",
        metavar="NAME",
        help="Reads reasoning: a vLLM name, auto (what the chat template asks for) or none.",
    ),
]
StateKeyFile = Annotated[
    Path | None,
    typer.Option(
        "--state-key-file",
        metavar="FILE",
        help="Key that signs stream_state, the same in all replicas; readable by its owner only. "
        "The environment variable SPLITSERVE_STATE_KEY does too.",
        show_default="a new key for each process",
    ),
]

ApiKeyFile = Annotated[
    Path | None,
    typer.Option(
        "--api-key-file",
        metavar="FILE",
        help="Ask clients for a key: lines made by `splitserve key`, readable by their owner only. "
        "The environment variable SPLITSERVE_API_KEY holds one key more.",
        show_default="no keys",
    ),
]
VllmApiKeyFile = Annotated[
    Path | None,
    typer.Option(
        "--vllm-api-key-file",
        metavar="FILE",
        help="Key that vLLM workers ask for, readable by its owner only. The environment variable "
        "VLLM_API_KEY does too.",
        show_default="no key",
    ),
]
PerRequestMetrics = Annotated[
    bool,
    typer.Option(
        "--enable-per-request-metrics",
        help="Tell in each answer where its time went: `metrics` in the body or, where usage was "
        "asked for, in the last chunk of a stream.",
    ),
]
Gateways = Annotated[
    int,
    typer.Option("--gateways", metavar="N", help="Gateway processes that share the port."),
]
ReusePort = Annotated[
    bool,
    typer.Option(
        "--reuse-port",
        help="Share the port with other gateways that were started with this flag.",
    ),
]

# How processes on several machines trust each other.
SecretFile = Annotated[
    Path | None,
    typer.Option(
        "--secret-file",
        metavar="FILE",
        help="Secret that all processes share over tcp:, readable by its owner only. The "
        "environment variable SPLITSERVE_SECRET does too.",
        show_default="none",
    ),
]
TlsCert = Annotated[
    Path | None,
    typer.Option(
        "--tls-cert",
        metavar="FILE",
        help="Certificate for tcp: between processes; with --tls-key and --tls-ca.",
        show_default="no TLS",
    ),
]
TlsKey = Annotated[
    Path | None,
    typer.Option("--tls-key", metavar="FILE", help="Its private key.", show_default="no TLS"),
]
TlsCa = Annotated[
    Path | None,
    typer.Option(
        "--tls-ca",
        metavar="FILE",
        help="Certificate of the authority that signed those of all processes.",
        show_default="no TLS",
    ),
]

# How a process runs.
LogDir = Annotated[
    Path | None,
    typer.Option(
        "--log-dir",
        metavar="DIR",
        help="Folder for one log file per process.",
        show_default="a temporary one",
    ),
]
LogLevel = Annotated[
    str, typer.Option("--log-level", metavar="debug|info|warning|error", help="What to log.")
]
StatusFd = Annotated[
    int | None,
    typer.Option(
        "--status-fd",
        metavar="FD",
        help="Say on this file descriptor when ready.",
        hidden=True,
    ),
]
ParentPid = Annotated[
    int | None,
    typer.Option(
        "--parent-pid",
        metavar="PID",
        help="End when this process, the parent, does.",
        hidden=True,
    ),
]


def memory_size(flag: str, text: str | None) -> ByteSize | None:
    """``text`` in bytes, None where it is not given. Raises ConfigError that names ``flag``."""
    if text is None:
        return None
    try:
        return parse_size(int(text) if text.isdecimal() else text)
    except ValueError as error:
        raise ConfigError(f"{flag}: {error}") from error


def size_or_zero(flag: str, text: str | None) -> ByteSize:
    """As ``memory_size``; 0 where it is not given."""
    return memory_size(flag, text) or ByteSize(0)


def core_list(flag: str, text: str) -> tuple[int, ...]:
    """``0,1`` or ``0-3,8`` as numbers; empty means none. Raises ConfigError naming the part."""
    cores: list[int] = []
    for part in text.split(",") if text else ():
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part)
        named = range(int(match[1]), int(match[2] or match[1]) + 1) if match else ()
        if not named:
            raise ConfigError(f"{flag}: {part!r} is not a core number; write 0,1 or 0-3")
        cores += named
    if len(set(cores)) != len(cores):
        raise ConfigError(f"{flag}: {text!r} names a core twice")
    return tuple(cores)
