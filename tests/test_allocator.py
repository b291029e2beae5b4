"""The model of torch's caching allocator, rule by rule, with numbers that fit in the head."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trueflops.predict.captured.allocator import NOTHING, CachingAllocator, OutOfMemory, Segment
from trueflops.units import MEBI

MIB = int(MEBI)


def held(allocator: CachingAllocator) -> list[tuple[float, float]]:
    """Total and allocated MiB of each segment, sorted."""
    return sorted((s.total_bytes / MIB, s.allocated_bytes / MIB) for s in allocator.segments())


@pytest.mark.parametrize(("asked", "rounded"), [(1, 512), (512, 512), (513, 1024), (32784, 33280)])
def test_sizes_are_rounded_up_to_512(asked: int, rounded: int) -> None:
    allocator = CachingAllocator()
    allocator.allocate(asked)
    assert allocator.allocated_bytes == rounded


@pytest.mark.parametrize("expandable", [False, True])
def test_nothing_costs_nothing(expandable: bool) -> None:
    allocator = CachingAllocator(expandable=expandable, limit_bytes=0)
    assert allocator.allocate(0) == NOTHING
    allocator.free(NOTHING)
    assert allocator.peak_reserved_bytes == 0
    with pytest.raises(ValueError, match="-1 B"):
        allocator.allocate(-1)


def test_a_block_is_freed_once() -> None:
    allocator = CachingAllocator()
    block = allocator.allocate(512)
    allocator.free(block)
    with pytest.raises(KeyError):
        allocator.free(block)


@pytest.mark.parametrize(
    ("asked", "segment"),
    [
        (512, 2 * MIB),
        (MIB, 2 * MIB),
        (MIB + 1, 20 * MIB),
        (10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB),
        (10 * MIB + 1, 12 * MIB),
        (98_304_000, 94 * MIB),  # an embedding of 32,000 × 768 in fp32: 93.75 MiB
    ],
)
def test_what_a_segment_takes(asked: int, segment: int) -> None:
    allocator = CachingAllocator()
    allocator.allocate(asked)
    assert allocator.reserved_bytes == segment


def test_small_and_large_blocks_share_no_segment() -> None:
    allocator = CachingAllocator()
    allocator.free(allocator.allocate(64 * MIB))
    allocator.allocate(MIB)
    assert held(allocator) == [(2, 1), (64, 0)]
    allocator.free(allocator.allocate(2 * MIB))
    assert allocator.reserved_bytes == 66 * MIB, "the large one is from the cache"
    assert [s.is_small for s in allocator.segments()] == [False, True]
    assert Segment(2 * MIB, MIB, is_small=True) in allocator.segments()


def test_small_blocks_are_split_to_the_last_512() -> None:
    allocator = CachingAllocator()
    allocator.allocate(MIB)
    allocator.allocate(MIB - 512)
    allocator.allocate(512)
    assert allocator.reserved_bytes == allocator.allocated_bytes == 2 * MIB
    allocator.allocate(512)
    assert allocator.reserved_bytes == 4 * MIB


def test_a_large_block_keeps_a_rest_of_one_mebibyte() -> None:
    allocator = CachingAllocator()
    whole = allocator.allocate(12 * MIB)
    allocator.free(whole)
    kept = allocator.allocate(11 * MIB)
    assert allocator.allocated_bytes == 12 * MIB
    allocator.free(kept)
    allocator.allocate(11 * MIB - 512)
    assert allocator.allocated_bytes == 11 * MIB - 512, "one byte more than 1 MiB is split off"


def test_rests_that_an_h200_counted_as_allocated() -> None:
    """Two bf16 embeddings in what one in fp32 left: 98,304,000 B asked, 98,566,144 B counted."""
    allocator = CachingAllocator()
    allocator.free(allocator.allocate(98_304_000))
    allocator.allocate(49_152_000)
    allocator.allocate(49_152_000)
    assert allocator.allocated_bytes == allocator.reserved_bytes == 98_566_144


def test_free_neighbours_merge_on_both_sides() -> None:
    allocator = CachingAllocator()
    blocks = [allocator.allocate(5 * MIB) for _ in range(4)]
    for at in (0, 2, 1):
        allocator.free(blocks[at])
    assert allocator.allocate(15 * MIB) == blocks[0]
    assert held(allocator) == [(20, 20)]


def test_segments_do_not_merge() -> None:
    allocator = CachingAllocator()
    for block in [allocator.allocate(10 * MIB) for _ in range(2)]:
        allocator.free(block)
    allocator.allocate(20 * MIB)
    assert held(allocator) == [(10, 0), (10, 0), (20, 20)]


def test_the_smallest_that_fits_is_taken_and_of_equals_the_newest_segment() -> None:
    allocator = CachingAllocator()
    sizes = (30, 12, 40, 12, 16)
    blocks = [allocator.allocate(size * MIB) for size in sizes]
    for block in blocks:
        allocator.free(block)
    taken = [allocator.allocate(size * MIB) for size in (12, 12, 12, 31)]
    assert taken == [blocks[3], blocks[1], blocks[4], blocks[2]]


def test_a_stream_does_not_take_another_ones_block() -> None:
    allocator = CachingAllocator()
    block = allocator.allocate(10 * MIB, stream=1)
    allocator.free(block)
    allocator.allocate(10 * MIB, stream=2)
    assert allocator.reserved_bytes == 20 * MIB
    assert allocator.allocate(10 * MIB, stream=1) == block


def test_empty_cache_keeps_segments_in_which_something_is_in_use() -> None:
    allocator = CachingAllocator()
    allocator.allocate(512)
    allocator.free(allocator.allocate(10 * MIB))
    allocator.free(allocator.allocate(10 * MIB, stream=1))
    parts = [allocator.allocate(5 * MIB) for _ in range(2)]
    allocator.free(parts[0])
    allocator.empty_cache()
    assert held(allocator) == [(2, 512 / MIB), (10, 5)]
    assert allocator.reserved_bytes == 12 * MIB


def test_peaks_are_kept_until_they_are_reset() -> None:
    allocator = CachingAllocator()
    allocator.free(allocator.allocate(10 * MIB))
    allocator.empty_cache()
    allocator.allocate(512)
    assert (allocator.peak_allocated_bytes, allocator.peak_reserved_bytes) == (10 * MIB, 10 * MIB)
    allocator.reset_peaks()
    assert (allocator.peak_allocated_bytes, allocator.peak_reserved_bytes) == (512, 2 * MIB)


def test_at_the_limit_the_cache_is_given_back_first() -> None:
    allocator = CachingAllocator(limit_bytes=40 * MIB)
    allocator.free(allocator.allocate(16 * MIB, stream=1))
    allocator.allocate(20 * MIB)
    allocator.allocate(20 * MIB)
    assert held(allocator) == [(20, 20), (20, 20)]
    assert allocator.peak_reserved_bytes == 40 * MIB


def test_out_of_memory_says_how_much_was_there() -> None:
    allocator = CachingAllocator(limit_bytes=40 * MIB)
    parts = [allocator.allocate(9 * MIB) for _ in range(2)]
    allocator.free(parts[1])  # 11 MiB of this segment are free, but the other 9 hold it
    allocator.free(allocator.allocate(14 * MIB))
    with pytest.raises(OutOfMemory) as caught:
        allocator.allocate(21 * MIB)
    why = caught.value
    assert (why.asked, why.allocated, why.reserved) == (22 * MIB, 9 * MIB, 20 * MIB)
    assert str(why) == str(pickle.loads(pickle.dumps(why)))
    assert "23068672 B" in str(why)
    allocator.allocate(11 * MIB)
    assert held(allocator) == [(20, 20)]


def test_an_expandable_segment_grows_by_pages() -> None:
    allocator = CachingAllocator(expandable=True)
    allocator.allocate(512)
    assert allocator.reserved_bytes == 2 * MIB
    first = allocator.allocate(24 * MIB)
    assert allocator.reserved_bytes == 2 * MIB + 40 * MIB
    second = allocator.allocate(17 * MIB)  # 16 MiB are free at the end: one page more
    assert second == first + 24 * MIB
    assert allocator.reserved_bytes == 2 * MIB + 60 * MIB
    assert allocator.allocated_bytes == 512 + 41 * MIB, "no rest is kept, however small"
    assert held(allocator) == [(2, 512 / MIB), (60, 41)]


def test_an_expandable_segment_joins_what_segments_would_not() -> None:
    allocator = CachingAllocator(expandable=True)
    for block in [allocator.allocate(20 * MIB) for _ in range(2)]:
        allocator.free(block)
    allocator.allocate(40 * MIB)
    assert held(allocator) == [(40, 40)]


def test_empty_cache_unmaps_free_pages_and_they_are_filled_first() -> None:
    allocator = CachingAllocator(expandable=True)
    blocks = [allocator.allocate(size * MIB) for size in (10, 40, 10, 20)]
    allocator.free(blocks[1])  # from 10 to 50 MiB: of this only the page from 20 to 40 is free
    allocator.empty_cache()
    assert held(allocator) == [(20, 10), (40, 30)]
    assert allocator.reserved_bytes == 60 * MIB
    again = allocator.allocate(35 * MIB)
    assert again == blocks[1]
    assert held(allocator) == [(80, 75)]
    for block in (again, blocks[0], blocks[2], blocks[3]):
        allocator.free(block)
    allocator.empty_cache()
    assert held(allocator) == []
    allocator.allocate(2 * MIB)
    assert held(allocator) == [(20, 2)]


def test_what_fits_is_taken_before_what_can_expand() -> None:
    """The free block at the end is the smaller one, but counts as large as it may become."""
    allocator = CachingAllocator(expandable=True)
    inner = allocator.allocate(9 * MIB)
    allocator.allocate(6 * MIB)
    allocator.free(inner)
    assert allocator.allocate(4 * MIB) == inner
    assert held(allocator) == [(20, 10)]


def test_an_expandable_segment_at_the_limit() -> None:
    allocator = CachingAllocator(expandable=True, limit_bytes=60 * MIB)
    other = allocator.allocate(40 * MIB, stream=1)
    allocator.free(other)
    allocator.allocate(50 * MIB)
    assert held(allocator) == [(60, 50)]
    with pytest.raises(OutOfMemory) as caught:
        allocator.allocate(11 * MIB)
    assert caught.value.reserved == 60 * MIB
    allocator.allocate(10 * MIB)
    assert allocator.allocated_bytes == allocator.peak_reserved_bytes == 60 * MIB


# A size to allocate on one of two streams, or which of the live blocks to free.
SIZES = st.one_of(st.integers(0, 3 * MIB), st.integers(0, 40 * MIB))
STEPS = st.lists(
    st.one_of(st.tuples(SIZES, st.integers(0, 1)), st.integers(0, 99), st.none()), max_size=80
)


@given(steps=STEPS, expandable=st.booleans(), limit=st.sampled_from([100, 10_000]))
def test_what_holds_after_any_program(
    steps: list[tuple[int, int] | int | None], expandable: bool, limit: int
) -> None:
    """None empties the cache, a number frees a block, a size and a stream allocate one."""
    allocator = CachingAllocator(expandable=expandable, limit_bytes=limit * MIB)
    live: dict[int, int] = {}  # rounded sizes by handle
    for step in steps:
        if step is None:
            allocator.empty_cache()
        elif isinstance(step, int):
            if live:
                handle = sorted(live)[step % len(live)]
                allocator.free(handle)
                del live[handle]
        else:
            size, stream = step
            try:
                handle = allocator.allocate(size, stream)
            except OutOfMemory:
                continue
            assert handle not in live
            if size:
                live[handle] = (size + 511) // 512 * 512
        check(allocator, live)
    for handle in live:
        allocator.free(handle)
    assert allocator.allocated_bytes == 0
    allocator.empty_cache()
    assert allocator.reserved_bytes == 0
    assert not list(allocator.segments())


def check(allocator: CachingAllocator, live: dict[int, int]) -> None:
    """Bytes are counted once, lie in segments, and no two blocks lie on each other."""
    segments = list(allocator.segments())
    rests = sum(size > MIB for size in live.values()) * (not allocator.expandable)
    asked = sum(live.values())
    assert asked <= allocator.allocated_bytes <= asked + rests * MIB
    assert allocator.allocated_bytes == sum(s.allocated_bytes for s in segments)
    assert allocator.reserved_bytes == sum(s.total_bytes for s in segments)
    assert allocator.allocated_bytes <= allocator.reserved_bytes <= allocator.limit_bytes
    assert allocator.allocated_bytes <= allocator.peak_allocated_bytes
    assert allocator.reserved_bytes <= allocator.peak_reserved_bytes
    ends = [handle + size for handle, size in sorted(live.items())]
    assert all(end <= begin for end, begin in zip(ends, sorted(live)[1:], strict=False))
