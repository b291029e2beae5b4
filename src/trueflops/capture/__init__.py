"""A real PyTorch program, run without a device: program in, Recording out. Needs torch.

named.py      FILE.py or FILE.py:FUNCTION as text, checked before torch is loaded
change.py     changes to price, and which number is a program's batch, without torch
changed.py    a program run with one of them
program.py    finds FILE.py:FUNCTION, builds it, runs its step to warm up and once more recorded
script.py     runs a whole script, and finds its steps by the optimizer that closes them
roles.py      what storages are for, where an optimizer or a parameter says so
recorder.py   the dispatch mode under which it runs: gives every op its shapes and records it
assumed.py    values that nobody knows, as the user gives them (without torch)
launches.py   what CUDA graphs launch, and the memory that they keep
places.py     where an op is called: phase of the step, module, compiled region
schema.py     what an op's schema says about it
trouble.py    errors for what a program without data cannot do, with the user's line
pretend/      the accelerator that is not there: tensors, torch.cuda, autocast, attention, compile
ranks/        the other ranks that are not there: process groups, collectives, DTensors
lower/        from calls to ops of the IR: what each launches (without torch)
"""
