"""Allocations and frees in, allocated and reserved bytes out: PyTorch's CUDA caching allocator.

After c10/cuda/CUDACachingAllocator.cpp of torch 2.11 to 2.13 with its default settings, and with
`expandable_segments:True`. Not modelled: CUDA graphs' private pools, blocks held back by
`record_stream`, and the settings that nobody sets (max_split_size, garbage collection, rounding).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from math import inf
from typing import Final, NamedTuple

from trueflops.units import MEBI

SMALLEST_BLOCK_BYTES: Final = 512  # kMinBlockSize: every size is a multiple of it
LARGEST_SMALL_BYTES: Final = int(MEBI)  # kSmallSize: up to this from the small pool
SMALL_SEGMENT_BYTES: Final = int(2 * MEBI)  # kSmallBuffer
LARGE_SEGMENT_BYTES: Final = int(20 * MEBI)  # large_segment_size, shared by several blocks
OWN_SEGMENT_FROM_BYTES: Final = int(10 * MEBI)  # kMinLargeAlloc: from here on a segment of its own
ROUND_SEGMENT_BYTES: Final = int(2 * MEBI)  # kRoundLarge, to which that one is rounded up

NOTHING: Final = 0  # the handle of zero bytes: every block lies below this address
# The addresses of an expandable segment, of which most have no memory: more than any device has.
# A multiple of both sizes of page, so that pages begin at multiples of their size.
ENDLESS_BYTES: Final = LARGE_SEGMENT_BYTES << 24


class OutOfMemory(Exception):
    """The device has no room, even after the cache was emptied; in bytes, as torch reports it."""

    def __init__(self, asked: int, allocated: int, reserved: int) -> None:
        super().__init__(asked, allocated, reserved)
        self.asked, self.allocated, self.reserved = asked, allocated, reserved

    def __str__(self) -> str:
        return (
            f"tried to allocate {self.asked} B more than the "
            f"{self.reserved} B reserved, of which {self.allocated} B are allocated"
        )


class Segment(NamedTuple):
    """A stretch of device memory, and how much of it is in use."""

    total_bytes: int
    allocated_bytes: int
    is_small: bool


class CachingAllocator:
    """The allocator of one device, which may reserve `limit_bytes` of it.

    `allocated_bytes` counts whole blocks, as torch.cuda.memory_allocated() does: sizes rounded up
    to 512 B and, in the large pool, a rest of up to 1 MiB that was not worth splitting off. So it
    depends on what was cached: parameters of 1.1 MiB in rests of 2 MiB count as 2 MiB.
    """

    def __init__(self, *, expandable: bool = False, limit_bytes: float = inf) -> None:
        self.expandable = expandable
        self.limit_bytes = limit_bytes
        self.allocated_bytes = self.peak_allocated_bytes = 0
        self.reserved_bytes = self.peak_reserved_bytes = 0
        self._pools: dict[tuple[int, bool], _Pool] = {}
        self._in_use: dict[int, _Block] = {}
        self._lowest_address = NOTHING

    def allocate(self, size_bytes: int, stream: int = 0) -> int:
        """Find a block of at least this size; its handle is its address. May raise OutOfMemory."""
        if size_bytes <= 0:
            if size_bytes < 0:
                raise ValueError(f"{size_bytes} B cannot be allocated")
            return NOTHING
        size = -(-size_bytes // SMALLEST_BLOCK_BYTES) * SMALLEST_BLOCK_BYTES
        is_small = size <= LARGEST_SMALL_BYTES
        pool = self._pools.get((stream, is_small))
        if pool is None:
            pool = self._pools[stream, is_small] = _Pool(is_small, self.expandable)
        block = pool.take_best_fit(size) or self._reserve(pool, size)
        if block.size - size >= pool.least_rest:
            pool.cache(block.cut(size))
        self._in_use[block.address] = block
        self.allocated_bytes += block.size
        if self.allocated_bytes > self.peak_allocated_bytes:
            self.peak_allocated_bytes = self.allocated_bytes
        return block.address

    def free(self, handle: int) -> None:
        """Back to the pool that it came from, as one block with its free neighbours."""
        if handle == NOTHING:
            return
        block = self._in_use.pop(handle)
        self.allocated_bytes -= block.size
        block.pool.cache_merged(block)

    def empty_cache(self) -> None:
        """Give back to the device what torch.cuda.empty_cache does.

        Segments in which nothing is in use; of expandable ones every page in which nothing is.
        """
        for pool in self._pools.values():
            self.reserved_bytes -= pool.unmap_pages() if self.expandable else pool.drop_segments()

    def reset_peaks(self) -> None:
        """Forget the peaks up to now, as torch.cuda.reset_peak_memory_stats does."""
        self.peak_allocated_bytes = self.allocated_bytes
        self.peak_reserved_bytes = self.reserved_bytes

    def segments(self) -> Iterator[Segment]:
        """As a snapshot of torch shows them; of expandable ones each run of mapped pages."""
        for pool in self._pools.values():
            for head in pool.heads.values():
                total = in_use = 0
                block: _Block | None = head
                while block is not None:
                    if block.mapped:
                        total += block.size
                        in_use += 0 if block.cached else block.size
                    elif total:
                        yield Segment(total, in_use, pool.is_small)
                        total = in_use = 0
                    block = block.after
                if total:
                    yield Segment(total, in_use, pool.is_small)

    def _reserve(self, pool: _Pool, size: int) -> _Block:
        """A block from the device; when it has no more, then after the cache was emptied."""
        grow = self._map_pages if self.expandable else self._new_segment
        block = grow(pool, size)
        if block is None:
            self.empty_cache()
            block = grow(pool, size)
        if block is None:
            asked = segment_bytes(size)
            raise OutOfMemory(asked, self.allocated_bytes, self.reserved_bytes)
        return block

    def _new_segment(self, pool: _Pool, size: int) -> _Block | None:
        """A block that is a whole segment, as cudaMalloc gives it."""
        total = segment_bytes(size)
        return pool.add_segment(self._lower_address(total), total) if self._charge(total) else None

    def _map_pages(self, pool: _Pool, size: int) -> _Block | None:
        """Map pages at the lowest address where free and unmapped blocks have room together."""
        block = pool.find_room(size)
        if block is None:
            block = pool.add_segment(self._lower_address(ENDLESS_BYTES), ENDLESS_BYTES)
            block.mapped = False
        while not block.mapped or block.size < size:
            hole = block.after if block.mapped else block
            assert hole is not None  # there is room
            missing = size - block.size if block.mapped else size
            mapped_bytes = min(-(-missing // pool.page_bytes) * pool.page_bytes, hole.size)
            if not self._charge(mapped_bytes):
                return None  # what is mapped by now stays, cached
            block = pool.map_first(hole, mapped_bytes)
        pool.uncache(block)
        return block

    def _charge(self, size: int) -> bool:
        """Whether the device has so much left; if so, it is reserved."""
        if self.reserved_bytes + size > self.limit_bytes:
            return False
        self.reserved_bytes += size
        self.peak_reserved_bytes = max(self.peak_reserved_bytes, self.reserved_bytes)
        return True

    def _lower_address(self, size: int) -> int:
        """Where a new segment lies: below all older ones.

        So snapshots of an H200 show it, but for small segments that fill holes between others.
        It decides which of two free blocks of one size is taken.
        """
        self._lowest_address -= size
        return self._lowest_address


def segment_bytes(size: int) -> int:
    """What is asked of the device for a block of this size (get_allocation_size)."""
    if size <= LARGEST_SMALL_BYTES:
        return SMALL_SEGMENT_BYTES
    if size < OWN_SEGMENT_FROM_BYTES:
        return LARGE_SEGMENT_BYTES
    return -(-size // ROUND_SEGMENT_BYTES) * ROUND_SEGMENT_BYTES


class _Block:
    """A stretch of a segment and its neighbours: cached, in use, or addresses without memory."""

    __slots__ = ("address", "after", "before", "cached", "mapped", "pool", "size")

    def __init__(self, pool: _Pool, address: int, size: int, *, mapped: bool = True) -> None:
        self.pool, self.address, self.size = pool, address, size
        self.before: _Block | None = None
        self.after: _Block | None = None
        self.cached = False
        self.mapped = mapped

    def cut(self, size: int) -> _Block:
        """Keep the first `size` bytes; the rest is a new block."""
        rest = _Block(self.pool, self.address + size, self.size - size, mapped=self.mapped)
        rest.before, rest.after = self, self.after
        if self.after is not None:
            self.after.before = rest
        self.after = rest
        self.size = size
        return rest

    def swallow_next(self) -> None:
        """Become one with the block behind. The first of two stays: so a segment's head does."""
        after = self.after
        assert after is not None
        self.size += after.size
        self.after = after.after
        if after.after is not None:
            after.after.before = self


class _Pool:
    """Small or large blocks of one stream: the segments, and what of them is free."""

    def __init__(self, is_small: bool, expandable: bool) -> None:
        self.is_small, self.expandable = is_small, expandable
        self.page_bytes = SMALL_SEGMENT_BYTES if is_small else LARGE_SEGMENT_BYTES
        # should_split: a large block keeps a rest of 1 MiB and less, unless it can expand.
        splits_all = is_small or expandable
        self.least_rest = SMALLEST_BLOCK_BYTES if splits_all else LARGEST_SMALL_BYTES + 1
        self.heads: dict[int, _Block] = {}  # the first block of each segment, by address
        self._free: list[tuple[int, int, _Block]] = []  # size, address: the order of best fit

    def take_best_fit(self, size: int) -> _Block | None:
        """The smallest free block that is large enough, of equals the one of lowest address."""
        free = self._free
        at = bisect_left(free, (size,))
        if at == len(free):
            return None
        if self.expandable:
            # What can expand counts as large as it may become (get_free_block).
            while at + 1 < len(free) and _reach(free[at + 1][2]) < _reach(free[at][2]):
                at += 1
        block = free.pop(at)[2]
        block.cached = False
        return block

    def cache(self, block: _Block) -> None:
        """Keep a free block for whoever asks next."""
        block.cached = True
        insort(self._free, (block.size, block.address, block))

    def uncache(self, block: _Block) -> None:
        """Take a free block out: its size changes or it is used."""
        block.cached = False
        del self._free[bisect_left(self._free, (block.size, block.address))]

    def cache_merged(self, block: _Block) -> _Block:
        """Keep a free block together with its free neighbours."""
        before, after = block.before, block.after
        if after is not None and after.cached:
            self.uncache(after)
            block.swallow_next()
        if before is not None and before.cached:
            self.uncache(before)
            before.swallow_next()
            block = before
        self.cache(block)
        return block

    def add_segment(self, address: int, size: int) -> _Block:
        """A new segment: one block, not cached yet."""
        block = self.heads[address] = _Block(self, address, size)
        return block

    def drop_segments(self) -> int:
        """Forget segments that are one free block (release_blocks); their bytes."""
        whole = [head for head in self.heads.values() if head.cached and head.after is None]
        for head in whole:
            self.uncache(head)
            del self.heads[head.address]
        return sum(head.size for head in whole)

    def find_room(self, size: int) -> _Block | None:
        """Where the lowest unmapped block and what is free around it have room.

        Begins at the free block before it, if there is one (find_expandable_block).
        """
        for head in self.heads.values():
            hole: _Block | None = head
            while hole is not None:
                if not hole.mapped:
                    before = hole.before
                    first = before if before is not None and before.cached else hole
                    if _has_room(first, size):
                        return first
                hole = hole.after
        return None

    def map_first(self, hole: _Block, size: int) -> _Block:
        """Back the first bytes of an unmapped block with memory; the free block that they join."""
        if size < hole.size:
            hole.cut(size)
        hole.mapped = True
        return self.cache_merged(hole)

    def unmap_pages(self) -> int:
        """Take memory from all pages that are wholly free (unmap_block); their bytes."""
        unmapped_bytes = 0
        for _, _, block in list(self._free):
            first = -(-block.address // self.page_bytes) * self.page_bytes
            last = (block.address + block.size) // self.page_bytes * self.page_bytes
            if first >= last:
                continue
            unmapped_bytes += last - first
            self.uncache(block)
            self._unmap(block, first, last)
        self.heads = {a: h for a, h in self.heads.items() if h.mapped or h.after is not None}
        return unmapped_bytes

    def _unmap(self, block: _Block, first: int, last: int) -> None:
        """Unmap the addresses from first to last of a free block; keep what is left of it."""
        if last < block.address + block.size:
            self.cache(block.cut(last - block.address))
        if first > block.address:
            hole = block.cut(first - block.address)
            self.cache(block)
        else:
            hole = block
        hole.mapped = False
        if hole.after is not None and not hole.after.mapped:
            hole.swallow_next()
        if hole.before is not None and not hole.before.mapped:
            hole.before.swallow_next()


def _reach(block: _Block) -> int:
    """How large a block is with the unmapped addresses behind it."""
    after = block.after
    return block.size + (after.size if after is not None and not after.mapped else 0)


def _has_room(first: _Block, size: int) -> bool:
    """Whether free and unmapped blocks from this one on add up to so much."""
    block: _Block | None = first
    room = 0
    while room < size and block is not None and (block.cached or not block.mapped):
        room += block.size
        block = block.after
    return room >= size


class PlainAllocator:
    """Memory of the host: nothing is rounded, nothing is cached."""

    def __init__(self) -> None:
        self.limit_bytes = inf
        self.allocated_bytes = self.reserved_bytes = 0
        self.peak_allocated_bytes = self.peak_reserved_bytes = 0
        self._sizes: dict[int, int] = {}
        self._next = 0

    def allocate(self, size_bytes: int, stream: int = 0) -> int:
        """A handle of so many bytes."""
        self._next += 1
        self._sizes[self._next] = size_bytes
        self.allocated_bytes = self.reserved_bytes = self.allocated_bytes + size_bytes
        self.peak_allocated_bytes = max(self.peak_allocated_bytes, self.allocated_bytes)
        self.peak_reserved_bytes = self.peak_allocated_bytes
        return self._next

    def empty_cache(self) -> None:
        """Nothing is kept that could be given back."""

    def free(self, handle: int) -> None:
        """Give them back."""
        self.allocated_bytes -= self._sizes.pop(handle)
        self.reserved_bytes = self.allocated_bytes

    def reset_peaks(self) -> None:
        """From now on."""
        self.peak_allocated_bytes = self.peak_reserved_bytes = self.allocated_bytes
