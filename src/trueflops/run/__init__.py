"""Carry out a plan with PyTorch's own distributed engine, and count what it does.

All but job, as_run, expected, launch and ran need torch.

job.py       what is to be run, checked           tokens.py    what it trains on
network.py   a plain transformer                  routed.py    tokens to their experts and back
layout.py    tensors of a rank, through DTensor   mesh.py      ranks of a plan as DeviceMeshes
replicas.py  DDP, ZeRO 1, FSDP2                   stages.py    torch's pipeline schedules
engine.py    one rank's step                      loop.py      all steps
counted.py   collectives and live storages        checkpoint.py  reloads under another plan
as_run.py    the plan that torch really runs      expected.py  what is predicted of it
launch.py    torchrun (agent.py), Slurm           ran.py       what a run did, as data
"""
