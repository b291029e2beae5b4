"""Other tools' files, read and written.

tables.py   CSV files, row by row
kernels.py  tables of kernels (matmul, attention, experts, collectives), recognised by their header
kineto/     traces of PyTorch's profiler
"""
