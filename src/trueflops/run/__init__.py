"""Carry out a plan with PyTorch's own distributed engine, and count what it does.

All but job, as_run, expected, sharing, logs, correction, judged, peak, launch, ran, served, rounded
and bind need torch.

job.py       what is to be run, checked           tokens.py    what it trains on
network.py   a plain transformer                  routed.py    tokens to their experts and back
layout.py    tensors of a rank, through DTensor   mesh.py      ranks of a plan as DeviceMeshes
replicas.py  DDP, ZeRO 1, FSDP2                   stages.py    torch's pipeline schedules
engine.py    one rank's step                      loop.py      all steps
counted.py   collectives and live storages        checkpoint.py  reloads under another plan
as_run.py    the plan that torch really runs      expected.py  what is predicted of it
launch.py    torchrun (agent.py), Slurm           ran.py       what a run did, as data
dataparallel.py  one process, many devices        bind.py      ranks to NUMA nodes
server.py    a parameter server, its worker.py    served.py    what it saw, and what is foreseen
scaling.py   the loss scale of fp16               precisions.py  one training in each precision
products.py  narrow products, summed in fp32      rounded.py   what each precision lost, as data
traced.py    a Kineto trace of a few steps        peak.py      of what MFU is a share
sharing.py   ranks on the cores of one CPU        logs.py      steps that others logged
correction.py  what real steps correct of a profile   judged.py  how far off plans were that ran
"""
