"""Where KV lies, in integers: what a connector may know of an engine's memory."""

import msgspec

from splitserve.errors import ConfigError


class KVLayout(msgspec.Struct, frozen=True):
    """Shape of a paged KV pool: layer by layer ``[block, K/V, kv_head, slot, head_dim]``.

    HND: a range of heads is contiguous within a block, so unequal tensor parallelism is a few
    copies. Sizes in bytes.

    The pool holds ``num_kv_heads`` of the model's ``total_kv_heads``, from ``first_kv_head`` on;
    a total of 0 says that it holds all of them.
    """

    dtype: str
    num_layers: int
    num_kv_heads: int
    head_dim: int
    block_size: int
    num_blocks: int
    itemsize: int
    first_kv_head: int = 0
    total_kv_heads: int = 0

    @property
    def model_kv_heads(self) -> int:
        """KV heads of the whole model."""
        return self.total_kv_heads or self.num_kv_heads

    @property
    def kv_heads(self) -> range:
        """Which of the model's KV heads this pool holds."""
        return range(self.first_kv_head, self.first_kv_head + self.num_kv_heads)

    @property
    def block_bytes(self) -> int:
        """Bytes of one block in one layer."""
        return 2 * self.num_kv_heads * self.block_size * self.head_dim * self.itemsize

    @property
    def layer_bytes(self) -> int:
        return self.block_bytes * self.num_blocks

    @property
    def pool_bytes(self) -> int:
        return self.layer_bytes * self.num_layers

    @property
    def token_bytes(self) -> int:
        """KV bytes of one token over all layers, of this pool's heads."""
        return self.block_bytes // self.block_size * self.num_layers

    def with_blocks(self, count: int) -> "KVLayout":
        """The same shape with another number of blocks."""
        return msgspec.structs.replace(self, num_blocks=count)

    def shards(self, count: int) -> "tuple[KVLayout, ...]":
        """The shares of the KV heads that ``count`` tensor-parallel shards hold, in order; the
        whole for 1. Raises ConfigError unless the heads can be shared out evenly."""
        if count == 1:
            return (self,)
        if count < 1 or self.num_kv_heads % count:
            raise ConfigError(
                f"tensor_parallel_size is {count}: give a number that divides the "
                f"{self.num_kv_heads} KV heads"
            )
        each = self.num_kv_heads // count
        return tuple(
            msgspec.structs.replace(
                self,
                num_kv_heads=each,
                first_kv_head=self.first_kv_head + shard * each,
                total_kv_heads=self.model_kv_heads,
            )
            for shard in range(count)
        )

    def offset(self, layer: int, block: int) -> int:
        """Byte offset of ``block``'s part of ``layer`` from the pool's start."""
        return layer * self.layer_bytes + block * self.block_bytes


class MemoryRegion(msgspec.Struct, frozen=True):
    """A stretch of one process's memory that a connector may read and write.

    ``address`` is valid in the owning process only. ``device`` is ``cpu`` or ``cuda:N``.
    ``shared_fd`` is the file descriptor behind shared host memory, -1 if there is none.
    """

    address: int
    nbytes: int
    device: str = "cpu"
    shared_fd: int = -1
