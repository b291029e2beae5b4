"""Other tools' files, read and written.

kernels.py  tables of kernels (matmul, attention, experts, collectives), recognised by their header
"""
