"""Other tools' files, read and written.

tables.py   CSV files, row by row
kernels.py  tables of kernels (matmul, attention, experts, collectives), recognised by their header,
            and kernel_ops.py, which makes ops of them
kineto/     traces of PyTorch's profiler
"""
