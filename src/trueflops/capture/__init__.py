"""A real PyTorch program, run without a device: program in, Recording out. Needs torch.

named.py      FILE.py:FUNCTION as text, checked before torch is loaded
program.py    finds FILE.py:FUNCTION, builds it, runs its step once to settle and once recorded
recorder.py   the mode under which it runs: every op works out its shapes and is written down
places.py     where an op stands: phase of the step, module, compiled region
schema.py     what an op's schema says of it
trouble.py    what a program without data cannot do, told with the user's line
pretend/      the accelerator that is not there: tensors, torch.cuda, autocast, attention, compile
ranks/        the other ranks that are not there: process groups, collectives, DTensors
lower/        from calls to ops of the IR: what each launches (free of torch, like Recording)
"""
