"""Curves: one law for one kind of work, fits that may be used, and what chips of one die share."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import trueflops as tf
from trueflops.calibrate.collectives import PARAMETERS
from trueflops.calibrate.fit import Sample
from trueflops.calibrate.kernels import own_curves
from trueflops.calibrate.samples import Split
from trueflops.catalog import accelerator, cluster
from trueflops.clock import Clock
from trueflops.clock.attention import ATTENTION, AttentionWork
from trueflops.clock.law import MANY, distinct
from trueflops.clock.matmul import MatmulWork
from trueflops.clock.silicon import Silicon
from trueflops.clock.works import LAWS, curve_key
from trueflops.errors import BadInput
from trueflops.graph import Op, Pass, Tensor, compile_program
from trueflops.graph.kinds import Kind, Role
from trueflops.graph.rules import work
from trueflops.graph.shapes import AttentionShape
from trueflops.interop.kernels import read_kernels
from trueflops.model import read_model
from trueflops.plan import Plan
from trueflops.predict import Server
from trueflops.predict.training.memory import Held
from trueflops.predict.training.muon import Matrix, matrices_of, newton_schulz_seconds, products
from trueflops.profile import CurveKey, Profile, profile_of, read_profile, write_profile
from trueflops.profile.stored import DATA
from trueflops.records.rows import identity
from trueflops.workload import Serving


def clock_on(name: str) -> Clock:
    where = cluster(name)
    return Clock(where, profile_of(where.accelerator))


def test_work_outside_a_graph_is_priced_by_the_law_of_streams() -> None:
    clock, million = clock_on("1xH200"), (("parameters", 1e6),)
    inputs, outputs = (
        tuple(Tensor(f"{way}{i}", million, 32.0) for i in range(count))
        for way, count in (("in", 4), ("out", 3))
    )
    adamw = Op("adamw", Kind.OPTIMIZER, inputs, outputs)
    by_law = clock.price_ops([adamw])[0].seconds
    assert clock.stream(28e6, "optimizer") == pytest.approx(by_law)
    several = clock.stream(np.array([28e6, 56e6]), "optimizer", kernels=2.0)
    assert several == pytest.approx(2.0 * clock.stream(np.array([14e6, 28e6]), "optimizer"))


def test_muon_is_products_that_the_clock_prices() -> None:
    square, wide = Matrix(4096.0, 4096.0), Matrix(1024.0, 4096.0)
    assert sum(work(op).flop for op in products(square)) == pytest.approx(6.0 * 4096.0**3)
    flop = [work(op).flop for op in products(wide)]
    assert flop == pytest.approx([2.0 * 1024**2 * 4096, 2.0 * 1024**3, 2.0 * 1024**2 * 4096])

    model, clock = read_model("Llama-2-7B"), clock_on("8xH100")
    held = Held(dense=np.array([6.7e9, 3.4e9]), experts=0.0, largest=0.0)
    plan = Plan(dp_replicate=np.array([1.0, 2.0]), optimizer="muon", zero=0)
    many = np.asarray(newton_schulz_seconds(model, plan, held, clock))
    assert many[0] == pytest.approx(2.0 * many[1], rel=0.02)
    # Whole matrices at what such products reach: slower than the peak, and not by much.
    ideal = 30.0 * model.hidden * 6.7e9 / clock.chip.peak_flop_per_second("bf16")
    assert 1.0 < many[0] / ideal < 1.6


def test_muon_orthogonalises_matrices_alone() -> None:
    model = read_model("DeepSeek-V3")
    parts = {p.name: p for b in model.blocks for p in b.parameters(model.hidden)}
    assert matrices_of(parts["attention.out"]) == {Matrix(7168.0, 128.0 * 128.0): 1}
    assert matrices_of(parts["attention.kv_up"]) == {Matrix(512.0, 128.0 * 256.0): 1}
    assert matrices_of(parts["experts.up"]) == {Matrix(2048.0, 7168.0): 256}
    assert not matrices_of(parts["attention.norm"])
    assert not matrices_of(parts["attention.kv_norm"])


# ── which curve an attention asks for ────────────────────────────────────────────────────────────


def attention_of(name: str, *, cache_bits: float) -> Op:
    """The attention over a prompt of 4096 tokens."""
    model = read_model(name)
    run = Pass(1.0, 4096.0, training=False, cache_bits=cache_bits)
    program = compile_program(model, Plan(), run)
    return next(op for op in program.blocks[-1] if isinstance(op, Op) and op.kind is Kind.ATTENTION)


def test_a_latent_prompt_reads_no_narrow_cache() -> None:
    narrow, wide = (attention_of("DeepSeek-V3", cache_bits=bits) for bits in (8.0, 16.0))
    assert curve_key(narrow) == curve_key(wide) == CurveKey("attention")
    clock = clock_on("8xB200")
    seconds = [priced.seconds for priced in clock.price_ops([narrow, wide])]
    assert seconds[0] == pytest.approx(seconds[1])
    assert work(wide).flop / seconds[1] > 0.3 * clock.chip.peak_flop_per_second("bf16")


def test_heads_of_a_plain_model_over_a_narrow_cache() -> None:
    assert str(curve_key(attention_of("Llama-3.1-8B", cache_bits=16.0))) == "attention"
    assert str(curve_key(attention_of("Llama-3.1-8B", cache_bits=8.0))) == "attention.kv8"


def test_a_fallback_kernel_has_a_curve_of_its_own(tmp_path: Path) -> None:
    rows = [
        "gpu,attn_dtype,kv_dtype,head_dim,num_heads,num_kv_heads,window,batch,isl,kernel",
        "b200,bfloat16,fp8,192,8,8,0,1,4096,vllm_triton_attn",
        "b200,bfloat16,fp8,192,8,8,0,1,4096,vllm_flashinfer_trtllmprefill",
    ]
    (tmp_path / "rows.csv").write_text("\n".join(rows))
    ops = [batch.ops[-1] for batch in read_kernels(tmp_path / "rows.csv")]
    assert [str(curve_key(op)) for op in ops] == ["attention.kv8.triton", "attention.kv8"]
    slow, fast = clock_on("1xB200").price_ops(ops)
    assert np.sum(slow.seconds) > 5.0 * np.sum(fast.seconds)


def test_a_convolution_names_its_way_and_nothing_else(tmp_path: Path) -> None:
    header, row = "m,n,k,dtype,cast,input_bytes,window", "4096,256,1152,bf16,0,1048576"
    good = [f"{row},convolution", f"{row},convolution_weight", f"{row},"]
    (tmp_path / "rows.csv").write_text("\n".join([header, *good]))
    ops = [batch.ops[-1] for batch in read_kernels(tmp_path / "rows.csv")]
    names = ["matmul.convolution", "matmul.convolution_weight", "matmul"]
    assert [str(curve_key(op)) for op in ops] == names
    (tmp_path / "rows.csv").write_text("\n".join([header, f"{row},convolutions"]))
    with pytest.raises(BadInput, match=r"rows\.csv:2: .*window.*convolutions.*convolution"):
        read_kernels(tmp_path / "rows.csv")


def test_only_an_engine_that_runs_the_fallback_is_priced_by_it() -> None:
    def names(chip: str, framework: str) -> set[str]:
        curves = profile_of(accelerator(chip), framework).curves
        return {str(key) for key in curves if key.odd_heads}

    both = {"attention.kv8.odd_heads", "attention_decode.kv8.odd_heads"}
    assert names("B200", "vllm") == names("L40S", "vllm") == both
    assert not names("B200", "trt-llm")
    assert not names("H100", "vllm")  # FlashAttention-3 takes any head


# ── fits that end at a bound ─────────────────────────────────────────────────────────────────────


def slow_kernels(efficiency: float) -> Split:
    """Prompts at a share of the peak, by the law itself."""
    silicon, size = Silicon.of(accelerator("H100")), np.array([2048.0, 4096.0, 8192.0, 16384.0])
    one = np.ones_like(size)
    shape = AttentionShape(one, size, 8 * one, 8 * one, size, size / 2, 128 * one, 128 * one)
    asked = AttentionWork(shape, size * 4096, size * 4096, one, "bf16")
    fast = ATTENTION.formula(asked, silicon, {**ATTENTION.usual(), "efficiency_128": 0.5})
    sample = Sample(silicon, asked, fast * 0.5 / efficiency)
    return Split("attention", sample, sample)


def test_a_fit_that_ends_at_a_bound_is_reported_and_not_used(tmp_path: Path) -> None:
    wide, narrow = CurveKey("attention"), CurveKey("attention", cache8=True)
    sound = own_curves(wide, slow_kernels(0.4))
    failed = own_curves(narrow, slow_kernels(0.001))
    assert not sound[wide].at_bounds
    assert "efficiency_128" in failed[narrow].at_bounds
    assert sound[wide].used
    assert not failed[narrow].used
    write_profile(Profile("both", "H100-SXM5-80GB", sound | failed), tmp_path / "both.json")
    stored = read_profile(tmp_path / "both.json")
    assert stored.curves[narrow].at_bounds == failed[narrow].at_bounds
    assert stored.curve(narrow) is stored.curve(wide)
    assert stored.lent("own")[narrow].values == stored.curves[wide].values
    write_profile(Profile("one", "H100-SXM5-80GB", failed), tmp_path / "one.json")
    alone = read_profile(tmp_path / "one.json")
    assert not alone.lent("given")
    used = profile_of(accelerator("L4"), given=alone).curve("attention.kv8")
    assert used == profile_of(accelerator("L4")).curve("attention.kv8")


@pytest.mark.parametrize("path", sorted(DATA.glob("*.json")), ids=lambda path: path.stem)
def test_a_shipped_profile_says_which_fits_ended_at_a_bound(path: Path) -> None:
    for name, curve in read_profile(path).curves.items():
        kind = "memory" if name.kind == "cast" else name.kind
        law = PARAMETERS if kind == "collective" else LAWS[kind].parameters if kind in LAWS else {}
        at = {key for key, value in curve.values.items() if key in law and law[key].at_bound(value)}
        assert at <= set(curve.at_bounds), name
        assert curve.used == (not any(law[key].decisive for key in at)), name


# ── chips of one die ─────────────────────────────────────────────────────────────────────────────


def test_collectives_are_shared_in_nodes_of_one_kind() -> None:
    def origin(chip: str) -> str:
        return profile_of(accelerator(chip)).curve("collective.all_reduce").origin

    assert origin("B200") == "measured"
    for chip in ("B300", "B100-SXM", "H20", "H800-SXM5-80GB", "A800-SXM4-80GB"):
        assert origin(chip) == "derived", chip
    for chip in ("GB200", "GH200-96GB", "H100-PCIe-80GB", "A800-PCIe-80GB", "L40"):
        assert origin(chip) == "assumed", chip


def test_a_die_says_what_a_datasheet_leaves_out() -> None:
    b300, b200 = (Silicon.of(accelerator(name)) for name in ("B300", "B200"))
    assert b300.hertz == b200.hertz
    assert Silicon.of(accelerator("B100-SXM")).units == b200.units
    assert Silicon.of(accelerator("H20")).l2_bytes == Silicon.of(accelerator("H100")).l2_bytes


def test_slow_tensor_cores_do_not_slow_what_memory_bounds() -> None:
    """An H20 has 1.19 times the bandwidth of an H100 and 0.15 of its arithmetic."""
    rows = np.array([1.0, 8.0, 16.0])
    x = Tensor("x", (("rows", rows), ("inner", 5120.0)))
    w = Tensor("w", (("columns", 13824.0), ("inner", 5120.0)), role=Role.WEIGHT)
    y = Tensor("y", (("rows", rows), ("columns", 13824.0)))
    op = Op("ffn", Kind.MATMUL, (x,), (y,), weights=(w,))
    h20, h100 = (
        np.asarray(clock_on(name).price_ops([op])[0].seconds) for name in ("1xH20", "1xH100")
    )
    assert (h100 / h20 > 1.05).all()
    asked, steps = Serving(1024, 1024, 16), {}
    for name in ("1xH20", "1xH100"):
        where = cluster(name)
        server = Server(read_model("Llama-2-13B"), asked, where, profile_of(where.accelerator))
        steps[name] = float(server.predict(Plan()).decode.value)
    assert steps["1xH100"] > 1.05 * steps["1xH20"]


def test_a_column_of_what_goes_without_saying_moves_no_row_to_the_other_side() -> None:
    row = {"gpu": "h200", "batch": "8", "isl": "4096", "latency_us": "10"}
    assert identity({**row, "causal": "1"}) == identity(row)
    assert identity({**row, "causal": "0"}) != identity(row)


def test_equal_kernels_are_priced_once_and_all_get_it() -> None:
    chip = accelerator("H200")
    curve, silicon = profile_of(chip).curve("matmul"), Silicon.of(chip)
    side = np.tile(np.array([512.0, 1024.0, 4096.0, 8192.0]), MANY)  # each of them many times
    made = MatmulWork("bf16", 1.0, side, 4096.0, side, side * 8192.0, side * 8192.0, 1e6)
    few, places = distinct(made)
    assert few.m.size == 4
    assert places is not None
    np.testing.assert_array_equal(few.m[places], side)
    each = [
        LAWS["matmul"].seconds(made._replace(**{n: getattr(made, n)[i : i + 1] for n in
                               ("m", "k", "weight_bytes", "other_bytes")}), silicon, curve)[0]
        for i in range(4)
    ]  # fmt: skip
    found = LAWS["matmul"].seconds(made, silicon, curve)
    np.testing.assert_allclose(found, np.tile(each, MANY), rtol=1e-12)


@pytest.mark.parametrize(("ep", "spread", "tokens"), [
    (1, "balanced", 1000.0),
    (4, "balanced", 1000.0),  # two copies of every token are the rank's, so that all come
    (64, "balanced", 125.0),  # one of every eighth token
    (64, "power_law_1.2", None),
])  # fmt: skip
def test_experts_timed_with_sglang_multiplied_copies_of_other_ranks(
    tmp_path: Path, ep: int, spread: str, tokens: float | None
) -> None:
    """All eight copies of each token that comes, where an engine multiplies those of its own."""
    rows = {}
    for kernel in ("sglang_fused_moe_triton", "vllm_tritonexperts"):
        path = tmp_path / "rows.csv"
        said = f"1000,4096,1024,8,128,1,{ep},{spread},{kernel}"
        header = "num_tokens,hidden,inter,topk,experts,moe_tp,moe_ep,distribution,kernel"
        path.write_text(f"{header}\n{said}\n")
        (batch,) = read_kernels(path)
        rows[kernel] = float(np.squeeze(dict(batch.ops[0].inputs[0].dims)["routed"]))
    theirs, own = rows.values()
    if tokens is None:
        assert 8.0 * own > theirs > 4.0 * own
    else:
        assert theirs == pytest.approx(8.0 * tokens)
        assert own == pytest.approx(8.0 * 1000.0 / ep)


@pytest.mark.parametrize("chip", ["TPU v7x", "Trainium3", "Gaudi3", "Rubin", "MI455X"])
@pytest.mark.parametrize("weights", ["fp8", "int4", "w8a16"])
def test_fewer_bits_are_not_slower_on_chips_that_nobody_measured(chip: str, weights: str) -> None:
    """Of a model that is large enough to hide the casts of its inputs."""
    wide, narrow = (
        tf.infer("Qwen3-8B", on=chip, concurrency=1, weights=each).point
        for each in ("bf16", weights)
    )
    assert wide is not None
    assert narrow is not None
    assert narrow.tpot.value < wide.tpot.value


def test_flash_attention_2_runs_by_the_instruction_it_was_written_for() -> None:
    """354 TFLOP/s on a B200 (tritonbench pull request 171), 366 on the H200 it was fitted to."""
    reached = {
        chip: profile_of(accelerator(chip)).curve("attention.fa2")["efficiency_128"]
        * accelerator(chip).peak_flop_per_second("bf16")
        for chip in ("H200", "B200")
    }
    assert reached["B200"] == pytest.approx(354e12, rel=0.1)
    assert reached["B200"] < reached["H200"]
