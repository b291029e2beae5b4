"""Two binary trees in which no rank has children twice: each carries half of the bytes.

In: a number of ranks. Out: the parent of each, in either tree.
Sanders, Speck, Träff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan", 2009;
laid out as NCCL does (src/graph/trees.cc: ncclGetBtree, ncclGetDtree).
"""

from __future__ import annotations

Parents = dict[int, int]  # of every rank but the root


def two_trees(count: int) -> tuple[Parents, Parents]:
    """A tree, and its mirror image; of an odd number of ranks, the same moved on by one."""
    first = _tree(count)
    if count % 2:
        return first, {(r + 1) % count: (p + 1) % count for r, p in first.items()}
    return first, {count - 1 - r: count - 1 - p for r, p in first.items()}


def _tree(count: int) -> Parents:
    """Rank 0 over one child; below it, a rank's lowest set bit says how high it stands."""
    parents: Parents = {}
    for rank in range(1, count):
        low = rank & -rank
        up = (rank ^ low) | (low << 1)
        parents[rank] = up if up < count else rank ^ low
    return parents


def chained(parents: Parents, chain: int, last_first: bool) -> Parents:
    """The same tree of nodes with the ranks of each in a chain that ends at its head."""
    nodes = {*parents, *parents.values()} or {0}
    order = range(chain - 1, -1, -1) if last_first else range(chain)
    head, *rest = order
    found: Parents = {chain * r + head: chain * p + head for r, p in parents.items()}
    for node in nodes:
        before = head
        for local in rest:
            found[chain * node + local] = chain * node + before
            before = local
    return found


def heights(parents: Parents) -> dict[int, int]:
    """How many hops lie below each rank: it sends up once all below it have."""
    found = dict.fromkeys({*parents, *parents.values()}, 0)
    for rank in parents:
        below, at = 0, rank
        while at in parents:
            below, at = below + 1, parents[at]
            found[at] = max(found[at], below)
    return found


def depths(parents: Parents) -> dict[int, int]:
    """How many hops each rank is below the root."""
    found = {}
    for rank in {*parents, *parents.values()}:
        above, at = 0, rank
        while at in parents:
            above, at = above + 1, parents[at]
        found[rank] = above
    return found
