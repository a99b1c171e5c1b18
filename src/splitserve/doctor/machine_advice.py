"""What to change on a machine, from what was found there. Pure."""

from collections.abc import Iterator, Sequence
from typing import Final

from splitserve.doctor.findings import Advice, Machine

_MIB: Final = 1 << 20

DOCKERS_SHM_BYTES: Final = 64 * _MIB
"""What a container gets unless it asks for more."""

SWAP_BYTES: Final = 256 * _MIB
OPEN_FILES: Final = 4096
"""A gateway holds a socket for each client and each vLLM request."""


def machine_advice(machine: Machine) -> Iterator[Advice]:
    for part in (_cores, _load, _memory, _shm, _limits, _ucx, _ucx_devices, _caches):
        yield from part(machine)


def _cores(machine: Machine) -> Iterator[Advice]:
    slow = [governor for governor in machine.governors if governor != "performance"]
    if slow:
        yield Advice(
            "warning",
            "governor",
            f"cores change their clock (governor {', '.join(slow)}): times vary, and the first "
            "tokens after a pause come late",
            "cpupower frequency-set -g performance",
        )
    if len(machine.cores) < 2:
        yield Advice(
            "warning",
            "cores",
            "this process may use one core: a split needs one for each worker",
            "give it more cores (taskset, the container's cpuset)",
        )


def _load(machine: Machine) -> Iterator[Advice]:
    if 0 < machine.cpus < machine.load:
        yield Advice(
            "note",
            "load",
            f"other work runs here (load {machine.load:.1f} on {machine.cpus} cores): rates are "
            "what it left, and vary",
            "measure again when the machine is quiet",
        )


def _memory(machine: Machine) -> Iterator[Advice]:
    if machine.swap_bytes > SWAP_BYTES:
        yield Advice(
            "warning",
            "swap",
            f"{machine.swap_bytes // _MIB} MiB of memory are swapped out: KV or weights that were "
            "take milliseconds to come back",
            "free memory, then swapoff -a",
        )


def _shm(machine: Machine) -> Iterator[Advice]:
    """Of /dev/shm: not where native workers' pools are, which are files without a name."""
    cure = "start the container with --shm-size=1g, or with --ipc=host"
    if 0 < machine.shm_bytes <= DOCKERS_SHM_BYTES:
        yield Advice(
            "warning",
            "shm",
            f"/dev/shm has {machine.shm_bytes // _MIB} MiB: vLLM's workers and UCX talk through it "
            "and fail, or take a slower path, when it is full",
            cure,
        )
    elif machine.shm_bytes > 0 and machine.shm_free_bytes < DOCKERS_SHM_BYTES:
        yield Advice(
            "warning",
            "shm",
            f"/dev/shm is full but for {machine.shm_free_bytes // _MIB} MiB",
            "remove what processes that ended have left there (ls -l /dev/shm)",
        )
    elif machine.shm_bytes == 0:
        yield Advice("warning", "shm", "there is no /dev/shm: vLLM needs it", cure)


def _limits(machine: Machine) -> Iterator[Advice]:
    if machine.open_files is not None and machine.open_files < OPEN_FILES:
        yield Advice(
            "warning",
            "files",
            f"a process may open {machine.open_files} files: a gateway under load needs more",
            "ulimit -n 65536",
        )
    if machine.rdma and machine.locked_bytes is not None:
        yield Advice(
            "warning",
            "memlock",
            f"a process may lock {machine.locked_bytes // 1024} KiB: RDMA locks all of a KV pool "
            "and fails, or UCX falls back to TCP",
            "ulimit -l unlimited; in a container --ulimit memlock=-1",
        )


def _ucx(machine: Machine) -> Iterator[Advice]:
    """Where NIXL is installed: to others the settings mean nothing."""
    if not (machine.versions.get("nixl") or machine.versions.get("vllm")):
        return
    ways, setting = machine.nixl_ways, machine.ucx_tls
    if not ways:
        yield Advice(
            "warning",
            "ucx",
            f"UCX_TLS is {setting!r} and leaves NIXL no way for memory of the host",
            "unset UCX_TLS",
        )
    elif ways == ("tcp",) and setting is not None:
        yield Advice(
            "warning",
            "ucx",
            f"with UCX_TLS {setting!r} NIXL has nothing but TCP, also within this host",
            "unset UCX_TLS, or add shm and rc to it; shm needs kernel.yama.ptrace_scope 0",
        )
    elif "shm" not in ways and setting is None:
        yield Advice(
            "warning",
            "ucx",
            "processes here may not copy from each other (kernel.yama.ptrace_scope): NIXL takes "
            f"{ways[0]} within this host",
            "sysctl kernel.yama.ptrace_scope=0; in a container --cap-add=SYS_PTRACE",
        )
    elif not {"tcp", "rc"} & set(ways):
        yield Advice(
            "warning",
            "ucx",
            f"UCX_TLS is {setting!r}: without tcp or an RDMA transport UCX does not notice that a "
            "peer has died",
            "add tcp to UCX_TLS",
        )


def _ucx_devices(machine: Machine) -> Iterator[Advice]:
    setting = machine.ucx_net_devices
    if setting is None:
        if len(machine.rdma) > 1:
            yield Advice(
                "note",
                "ucx",
                f"UCX_NET_DEVICES is not set and there are {len(machine.rdma)} RDMA ports: UCX may "
                "choose one that does not reach the other hosts, and transfers then hang",
                f"set UCX_NET_DEVICES to those that do, as in {machine.rdma[0]}",
            )
        return
    unknown = _unknown(setting, machine)
    if unknown:
        yield Advice(
            "warning",
            "ucx",
            f"UCX_NET_DEVICES names {', '.join(map(repr, unknown))}, which this machine does not "
            "have",
            "take names from `ucx_info -d`, without spaces",
        )


def _unknown(setting: str, machine: Machine) -> Sequence[str]:
    """Names in a value of UCX_NET_DEVICES that are no device here, spaces and all."""
    cards = {port.partition(":")[0] for port in machine.rdma}
    known = {"all", *machine.networks, *machine.rdma, *cards}
    return [name for name in setting.removeprefix("^").split(",") if name not in known]


def _caches(machine: Machine) -> Iterator[Advice]:
    if not machine.hub_cache_there:
        yield Advice(
            "note",
            "cache",
            f"there is no {machine.hub_cache}: models named by hub id will be fetched",
            "set HF_HOME to where they are, or fetch them before",
        )
