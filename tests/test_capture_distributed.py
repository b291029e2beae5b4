"""Programs that run as one rank of many: what they send, over which group, on which stream."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from trueflops.capture.pretend.machine import Machine
from trueflops.capture.program import capture
from trueflops.capture.ranks.collectives import FIRST_GROUP_STREAM
from trueflops.capture.trouble import CannotCapture
from trueflops.catalog import cluster
from trueflops.clock import Clock
from trueflops.errors import BadInput
from trueflops.predict.captured.step import captured_step
from trueflops.profile import profile_of
from trueflops.records.recording import Allocated, Call, Freed, Recording, Waited
from trueflops.units import GIBI, MEBI

H100 = Machine("NVIDIA H100 80GB HBM3", 80 * int(GIBI), 132, (9, 0), 50 * int(MEBI))
WIDTH, LAYERS, VOCABULARY, BATCH, SEQ = 64, 2, 256, 2, 32
Step = Callable[[], Any]


class Block(nn.Module):
    """A transformer's feed-forward."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 4 * WIDTH, bias=False)
        self.down = nn.Linear(4 * WIDTH, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = x + self.down(functional.silu(self.up(self.norm(x))))
        return y


class Model(nn.Module):
    """An embedding, a few blocks, a head."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(Block() for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        y: Tensor = self.head(x)
        return y


BLOCK_ELEMENTS = 8 * WIDTH * WIDTH + WIDTH
MODEL_ELEMENTS = LAYERS * BLOCK_ELEMENTS + 2 * VOCABULARY * WIDTH


def as_rank(program: Callable[[], Step], world: int = 8, rank: int = 3) -> Recording:
    """Capture it as one rank."""
    return capture(lambda: program, H100, world=world, rank=rank)


def sent(recording: Recording, part: str) -> list[Call]:
    """The collectives of a step whose name holds this."""
    return [call for call in recording.calls() if call.group and part in call.op]


def train(model: nn.Module, *, clip: bool = False) -> Step:
    """The step of a model of tokens."""
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    tokens = torch.randint(0, VOCABULARY, (BATCH, SEQ), device="cuda")

    def step() -> None:
        logits = model(tokens).flatten(0, 1).float()
        loss = functional.cross_entropy(logits, tokens.flatten())
        torch.autograd.backward(loss)
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step


def live_bytes(recording: Recording) -> tuple[int, int]:
    """Memory of the device between steps, and the most that the recorded step had."""
    sizes: dict[int, int] = {}
    between, most, first = 0, 0, len(recording.events) - len(recording.step())
    for i, event in enumerate(recording.events):
        if i == first:
            between = sum(sizes.values())
        if isinstance(event, Allocated):
            sizes[event.storage] = event.size_bytes
            most = max(most, sum(sizes.values()) if i >= first else 0)
        elif isinstance(event, Freed):
            sizes.pop(event.storage, None)
    return between, most


# ── the world ────────────────────────────────────────────────────────────────────────────────────


def test_a_program_sees_torchruns_environment_and_all_is_put_back() -> None:
    seen: dict[str, Any] = {}

    def program() -> Step:
        dist.init_process_group("cpu:gloo,cuda:nccl")
        seen.update(
            rank=dist.get_rank(),
            world=dist.get_world_size(),
            node=os.environ["GROUP_RANK"],
            local=os.environ["LOCAL_WORLD_SIZE"],
            backend=dist.get_backend(),
            nccl=dist.is_nccl_available(),
        )
        return lambda: dist.all_reduce(torch.ones(4, device="cuda"))

    before, hook = dict(os.environ), sys.excepthook
    recording = as_rank(program, world=16, rank=11)
    assert seen == {
        "rank": 11, "world": 16, "node": "1", "local": "8", "backend": "cpu:gloo,cuda:nccl",
        "nccl": True,
    }  # fmt: skip
    assert (recording.world, recording.rank) == (16, 11)
    assert (dict(os.environ), sys.excepthook) == (before, hook)
    assert not dist.is_initialized()
    assert not dist.is_nccl_available()


def test_ranks_outside_the_world_and_programs_that_stay_alone() -> None:
    def alone() -> Step:
        return lambda: torch.ones(4, device="cuda") + 1

    for world, rank in ((8, 8), (8, -1), (0, 0)):
        with pytest.raises(BadInput, match="world of"):
            as_rank(alone, world, rank)
    recording = as_rank(alone)
    assert (recording.world, recording.rank) == (1, 0)
    assert "never called torch.distributed.init_process_group" in recording.warnings[0]


def test_a_group_must_be_of_the_world_and_the_world_as_asked() -> None:
    def beyond() -> Step:
        dist.init_process_group("nccl")
        dist.new_group([0, 9])
        return lambda: None

    def other() -> Step:
        dist.init_process_group("nccl", rank=1, world_size=4)
        return lambda: None

    with pytest.raises(CannotCapture, match=r"dist\.new_group.*Rank 9 is out of range"):
        as_rank(beyond)
    with pytest.raises(CannotCapture, match=r"opens a world of 4 ranks.*but 8 were asked"):
        as_rank(other)
    recording = as_rank(other, world=1, rank=0)  # it names its place itself
    assert (recording.world, recording.rank) == (4, 1)


def test_objects_and_known_numbers_are_those_of_this_rank() -> None:
    def program() -> Step:
        dist.init_process_group()
        rank, world = dist.get_rank(), dist.get_world_size()
        objects: list[Any] = [None] * world
        dist.all_gather_object(objects, {"rank": rank})
        assert objects == [{"rank": rank}] * world
        dist.broadcast_object_list(objects, src=0)
        dist.barrier()
        for device in ("cpu", "cuda"):
            count = torch.ones(1, device=device)
            dist.all_reduce(count)
            assert count.item() == world
            largest = torch.full((1,), 5, device=device)
            dist.all_reduce(largest, op=dist.ReduceOp.MAX)
            assert largest.item() == 5
        return lambda: None

    as_rank(program)


# ── collectives and their streams ────────────────────────────────────────────────────────────────


def test_what_is_asynchronous_runs_on_the_groups_own_stream() -> None:
    def program() -> Step:
        dist.init_process_group("nccl")
        half = dist.new_group([0, 1, 2, 3])
        x = torch.randn(64, 32, device="cuda")

        def step() -> None:
            work = dist.all_reduce(x, group=half, async_op=True)
            y = x * 2  # meanwhile
            work.wait()
            dist.all_reduce(y)

        return step

    recording = as_rank(program)
    lane = FIRST_GROUP_STREAM
    events = [e for e in recording.step() if isinstance(e, (Call, Waited))]
    first, call, meanwhile, after, second = events
    assert isinstance(first, Waited)
    assert (first.waiting, first.awaited) == (lane, 0)
    assert isinstance(call, Call)
    assert (call.op, call.stream, call.group) == ("c10d.allreduce_.default", lane, (0, 1, 2, 3))
    assert isinstance(meanwhile, Call)
    assert meanwhile.stream == 0
    assert isinstance(after, Waited)
    assert (after.waiting, after.awaited) == (0, lane)
    assert after.at == recording.step().index(call) + 1
    assert isinstance(second, Call)
    assert (second.stream, second.group) == (0, tuple(range(8)))  # async_op=False: where we are


def test_streams_that_share_a_link_do_not_beat_it() -> None:
    """Four groups of the same ranks reduce side by side; the link carries one after another."""

    def program() -> Step:
        dist.init_process_group("nccl")
        groups = [dist.new_group(list(range(8))) for _ in range(4)]
        x = torch.empty(64 * int(MEBI), device="cuda")

        def step() -> None:
            for work in [dist.all_reduce(x, group=g, async_op=True) for g in groups]:
                work.wait()

        return step

    where = cluster("8xH100")
    clock = Clock(where, profile_of(where.accelerator))
    step = captured_step(as_rank(program), clock)
    sent = 4 * 2 * (7 / 8) * 64 * MEBI * 4.0  # a ring's share of each reduction, in fp32
    assert float(step.seconds.value) >= 0.95 * sent / where.tiers[0].bandwidth
    one = max(each.end - each.start for each in step.ran)
    assert float(step.seconds.value) > 3.0 * one


def test_every_kind_of_collective_is_recorded_with_what_goes_in_and_comes_out() -> None:
    import torch.distributed._functional_collectives as functional_collectives

    def program() -> Step:
        dist.init_process_group("nccl")
        world = dist.get_world_size()

        def step() -> None:
            x = torch.randn(64, 32, device="cuda")
            y = torch.empty_like(x)
            parts = [torch.empty(8, 32, device="cuda") for _ in range(world)]
            dist.all_to_all_single(y, x)
            dist.all_to_all(parts, list(x.chunk(world)))
            dist.all_gather(parts, x[:8])
            dist.reduce_scatter(parts[0], list(x.chunk(world)))
            dist.broadcast(x, 0)
            everybody = dist.group.WORLD
            assert everybody is not None
            moved = functional_collectives.all_to_all_single(x, [8] * 8, [8] * 8, everybody)
            assert (moved + 1).shape == x.shape

        return step

    recording = as_rank(program)
    sizes = {
        call.op.split(".")[1]: (
            sum(a.elements for a in call.inputs),
            sum(a.elements for a in call.outputs),
        )
        for call in sent(recording, "")
    }
    assert sizes == {
        "alltoall_base_": (2048, 2048), "alltoall_": (2048, 2048), "allgather_": (256, 2048),
        "reduce_scatter_": (2048, 256), "broadcast_": (2048, 2048),
        "all_to_all_single": (2048, 2048),
    }  # fmt: skip
    calls = list(recording.calls())
    functional_call = next(c for c in calls if c.op.startswith("_c10d_functional"))
    assert functional_call.stream >= FIRST_GROUP_STREAM
    waited = [e for e in recording.step() if isinstance(e, Waited) and e.waiting == 0]
    assert [w.awaited for w in waited] == [functional_call.stream]


def test_transfers_of_a_batch_run_side_by_side() -> None:
    def program() -> Step:
        dist.init_process_group("nccl")
        rank, world = dist.get_rank(), dist.get_world_size()
        x, y = (torch.randn(32, device="cuda") for _ in range(2))

        def step() -> None:
            there = dist.P2POp(dist.isend, x, (rank + 1) % world)
            here = dist.P2POp(dist.irecv, y, (rank - 1) % world)
            for work in dist.batch_isend_irecv([there, here]):
                work.wait()

        return step

    there, here = sent(as_rank(program), "")
    assert (there.op, there.group) == ("c10d.send.default", (3, 4))
    assert (here.op, here.group) == ("c10d.recv_.default", (2, 3))
    assert there.stream != here.stream
    assert (len(there.inputs), len(there.outputs)) == (1, 0)
    assert (len(here.inputs), len(here.outputs)) == (0, 1)


# ── data parallel ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "options",
    [{}, {"gradient_as_bucket_view": True}, {"static_graph": True},
     {"find_unused_parameters": True}],
    ids=lambda o: next(iter(o), "plain"),
)  # fmt: skip
def test_ddp_reduces_its_buckets_while_the_backward_pass_goes_on(options: dict[str, Any]) -> None:
    def program() -> Step:
        dist.init_process_group("nccl", device_id=torch.device("cuda:0"))
        model = Model().cuda()
        return train(DistributedDataParallel(model, [0], bucket_cap_mb=0.1, **options))

    recording = as_rank(program)
    reduced = [c for c in sent(recording, "allreduce") if c.inputs[0].dtype == "float32"]
    assert sum(c.inputs[0].elements for c in reduced) == MODEL_ELEMENTS
    assert len(reduced) > 2
    assert {(c.stream, c.phase, len(c.group)) for c in reduced} == {
        (FIRST_GROUP_STREAM, "backward", 8)
    }
    assert not sent(recording, "broadcast")  # of buckets: those ran in the warm-up steps
    events = list(recording.calls())
    later = events[events.index(reduced[0]) + 1 :]
    assert any("mm" in c.op and c.phase == "backward" for c in later)
    step = recording.step()
    waits = [i for i, e in enumerate(step) if isinstance(e, Waited) and e.waiting == 0]
    assert len(waits) >= len(reduced)
    assert min(waits) > step.index(reduced[-1])
    assert live_bytes(recording)[0] < 5.2 * 4 * MODEL_ELEMENTS  # weights, moments, buckets


def test_a_communication_hook_of_ddp_runs_beside_the_backward_pass() -> None:
    def program() -> Step:
        dist.init_process_group("nccl")
        model = DistributedDataParallel(Model().cuda(), [0], bucket_cap_mb=0.1)
        model.register_comm_hook(None, default_hooks.bf16_compress_hook)
        return train(model)

    recording = as_rank(program)
    reduced = sent(recording, "allreduce")
    assert {c.inputs[0].dtype for c in reduced} == {"bfloat16"}
    back = [
        c for c in recording.calls() if c.stream > FIRST_GROUP_STREAM
    ]  # bf16 -> fp32, as it arrives
    assert sum(c.outputs[0].elements for c in back) == MODEL_ELEMENTS


# ── sharded and split models ─────────────────────────────────────────────────────────────────────


def shard(model: nn.Module, layers: Iterable[nn.Module], mesh: Any) -> nn.Module:
    """FSDP2, bf16 to compute and fp32 to reduce."""
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in layers:
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    model.to_empty(device="cuda")
    for parameter in model.parameters():
        nn.init.trunc_normal_(parameter)
    return model


def split(model: Model, mesh: Any) -> None:
    """Tensor and sequence parallel."""
    ends = {
        "embedding": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        "head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate()),
    }
    parallelize_module(model, mesh, ends)
    for layer in model.layers:
        plan = {
            "norm": SequenceParallel(),
            "up": ColwiseParallel(input_layouts=Shard(1)),
            "down": RowwiseParallel(output_layouts=Shard(1)),
        }
        parallelize_module(layer, mesh, plan)


def test_fsdp_gathers_and_scatters_what_theory_says_and_frees_it() -> None:
    def program() -> Step:
        dist.init_process_group("cpu:gloo,cuda:nccl")
        mesh = init_device_mesh("cuda", (dist.get_world_size(),))
        with torch.device("meta"):
            model = Model()
        assert next(shard(model, model.layers, mesh).parameters()).device.type == "cuda"
        return train(model, clip=True)

    recording = as_rank(program)
    gathered, scattered = sent(recording, "_allgather_base_"), sent(recording, "_reduce_scatter")
    # Blocks are gathered twice; the root keeps embedding and head between forward and backward.
    ends, blocks = 2 * VOCABULARY * WIDTH, LAYERS * BLOCK_ELEMENTS
    assert sum(c.outputs[0].bytes for c in gathered) == 2 * (ends + 2 * blocks)
    assert sum(c.inputs[0].bytes for c in scattered) == 4 * MODEL_ELEMENTS
    assert sum(c.outputs[0].bytes for c in scattered) == 4 * MODEL_ELEMENTS / 8
    assert {c.group for c in gathered + scattered} == {tuple(range(8))}
    assert {c.phase for c in scattered} == {"backward"}
    assert 0 not in {c.stream for c in gathered + scattered}  # FSDP's own streams
    assert recording.parameter_count == MODEL_ELEMENTS
    assert not recording.warnings
    # A shard of weights and both moments is all that is left between steps.
    between, most = live_bytes(recording)
    states, tokens, counters = 3 * 4 * MODEL_ELEMENTS // 8, 8 * BATCH * SEQ, 4 * 100
    assert states <= between <= states + tokens + counters
    assert most > between + 2 * ends


def test_tensor_parallel_gathers_sequences_and_scatters_sums() -> None:
    def program() -> Step:
        dist.init_process_group("nccl")
        mesh = init_device_mesh("cuda", (2, 4), mesh_dim_names=("dp", "tp"))
        with torch.device("meta"):
            model = Model()
        split(model, mesh["tp"])
        model.to_empty(device="cuda")
        return train(model)

    recording = as_rank(program, rank=6)
    gathered = sent(recording, "all_gather_into_tensor")
    scattered = sent(recording, "reduce_scatter_tensor")
    assert {c.group for c in gathered + scattered} == {(4, 5, 6, 7)}
    forward = [c for c in gathered if c.phase == "forward"]
    activations = BATCH * SEQ * WIDTH
    hidden = [c for c in forward if c.outputs[0].elements == activations]
    assert len(hidden) == LAYERS + 1  # each block's, and the head's
    assert len([c for c in scattered if c.phase == "forward"]) == LAYERS + 1  # and the embedding's
    products = [c for c in recording.calls() if c.op == "aten.mm.default"]
    assert {c.inputs[1].shape for c in products if c.module == "layers.0.up"} >= {(WIDTH, WIDTH)}
    names = {c.op for c in recording.calls() if c.module == "layers.0.norm"}
    assert "aten._fused_rms_norm.default" in names


def test_a_mesh_of_two_dimensions_shards_what_is_already_split() -> None:
    def program() -> Step:
        dist.init_process_group("nccl")
        mesh = init_device_mesh("cuda", (2, 4), mesh_dim_names=("dp", "tp"))
        with torch.device("meta"):
            model = Model()
        split(model, mesh["tp"])
        return train(shard(model, model.layers, mesh["dp"]), clip=True)

    recording = as_rank(program)
    assert {c.group for c in sent(recording, "c10d.")} == {(3, 7)}
    assert {c.group for c in sent(recording, "all_gather_into_tensor")} == {(0, 1, 2, 3)}
    gathered = sum(c.outputs[0].elements for c in sent(recording, "_allgather_base_"))
    norms = LAYERS * WIDTH  # not split
    whole = (2 * LAYERS * 8 * WIDTH * WIDTH + 2 * VOCABULARY * WIDTH) / 4
    assert gathered == whole + 2 * norms


# ── pipelines ────────────────────────────────────────────────────────────────────────────────────

MICRO_BATCHES = 6


@pytest.mark.parametrize("kind", [Schedule1F1B, ScheduleGPipe])
@pytest.mark.parametrize("rank", [0, 1, 3])
def test_a_stage_of_a_pipeline_sends_and_receives_each_micro_batch(kind: Any, rank: int) -> None:
    def program() -> Step:
        dist.init_process_group("nccl")
        place, stages = dist.get_rank(), dist.get_world_size()
        device = torch.device("cuda")
        part = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()).to(device)
        stage = PipelineStage(part, place, stages, device)
        schedule = kind(stage, MICRO_BATCHES, loss_fn=functional.mse_loss)
        x = torch.randn(MICRO_BATCHES * 4, WIDTH, device=device)

        def step() -> None:
            if place == 0:
                schedule.step(x)
            elif place == stages - 1:
                schedule.step(target=x)
            else:
                schedule.step()

        return step

    recording = as_rank(program, world=4, rank=rank)
    neighbours = (rank > 0) + (rank < 3)
    out, into = sent(recording, "send"), sent(recording, "recv")
    assert len(out) == len(into) == MICRO_BATCHES * neighbours
    assert {c.inputs[0].shape for c in out} == {(4, WIDTH)}
    assert {c.outputs[0].shape for c in into} == {(4, WIDTH)}
    assert {abs(a - b) for c in out + into for a, b in [c.group]} == {1}
    assert (recording.world, recording.rank) == (4, rank)


# ── torchtitan ───────────────────────────────────────────────────────────────────────────────────


def test_torchtitans_own_trainer_is_captured_from_its_launcher() -> None:
    pytest.importorskip("torchtitan")
    from torchtitan.models.llama3.config_registry import llama3_debugmodel

    from torchtitan_steps import step_of

    def program() -> Step:
        config = llama3_debugmodel()
        config.parallelism.tensor_parallel_degree = 2
        return step_of(config)

    recording = as_rank(program)
    gathered = sent(recording, "_allgather_base_")
    assert {len(c.group) for c in gathered} == {4}
    assert {c.group for c in sent(recording, "all_gather_into_tensor")} == {(2, 3)}
    # bf16 weights for forward and for backward, halved by tensor parallelism but for the norms.
    halves = 2 * recording.parameter_count / 2
    assert sum(c.outputs[0].bytes for c in gathered) == pytest.approx(2 * halves, rel=0.1)
