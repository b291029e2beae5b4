"""The algorithms of collectives: how its ranks share the work. A closed enum.

Patarasuk & Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009.
Sanders et al., "Two-tree algorithms for full bandwidth broadcast, reduction and scan", 2009.
Thakur et al., "Optimization of collective communication operations in MPICH", 2005.
Bruck et al., "Efficient algorithms for all-to-all communications", 1997.
Graham et al., "Scalable hierarchical aggregation protocol (SHArP)", 2016.
Li et al., "Scaling distributed machine learning with the parameter server", 2014.
"""

from __future__ import annotations

from enum import StrEnum


class Algorithm(StrEnum):
    """Which of them the library has, and prices, collectives.py says; the others are in ways.py."""

    RING = "ring"  # every rank to its neighbour, a chunk a step (Patarasuk & Yuan)
    TREE = "tree"  # two binary trees of half the bytes each (Sanders; NCCL since 2.4)
    HIERARCHY = "hierarchical"  # tier by tier, each moving what the inner ones left over
    DIRECT = "direct"  # every pair at once
    HALVING = "halving-doubling"  # with a rank twice as far each step (Thakur)
    BRUCK = "bruck"  # an all-to-all in log₂ n steps, each of half the bytes
    BINOMIAL = "binomial-tree"  # whoever has all bytes sends them on, whole (Thakur)
    IN_SWITCH = "in-switch"  # the switch adds (Graham)
    SHARDED_SERVER = "server-everywhere"  # each rank the parameter server of its part (Li)
    HOST_SERVER = "server-host"  # the parameters in one node's host memory
    RANK_SERVER = "server-rank0"  # rank 0 adds and sends back: torch.nn.DataParallel
