"""What this machine really delivers: a side wing that runs on the accelerator itself.

Needs torch and numpy alone, so that our source copied to a bare cluster node works there: python -m
trueflops.measure -o PROFILE.json. Of the package it imports errors, files and records (a test).
resume.py       a new file, or one that is gone on with
device.py       which device, what it is and how to wait for it
timing.py       seconds of one launch: graph replay, cold rotating buffers, random data, quantiles
sensors.py      what NVML, amdsmi and sysfs say; state.py samples it while something runs
products.py     matrix products in every number format; shapes.py: which to time
seek.py         the fastest shape of a format, by a guided search; formats.py: the formats
attention.py    prompts, forward and backward, and decoding
kernels.py      norms, activations, losses, the optimizer's step, launches
calls.py        calls of ATen ops, one by one
eager.py        which of them: pointwise, sums, lists; moved.py: copies, look-ups, sorts
layers.py       norms, pooling, convolutions and their gradients
streams.py      memory bandwidth by size, the host link, NUMA nodes; host_speed.py: the host itself
power.py        lasting loads: watts, the clock they leave, joules
collectives.py  under torchrun: NCCL, RCCL or gloo
sections.py     what is measured, in which order and with which share of the time
run.py          the loop: a budget, a progress line, out of memory; node.py: all GPUs at once
start.py        a measurement from its flags (flags.py); job.py: one thing to measure
stopping.py     Ctrl-C and SIGTERM
"""
