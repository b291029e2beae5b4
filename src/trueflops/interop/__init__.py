"""Other tools' files, read and written.

kernels.py  tables of kernels (matmul, attention, experts, collectives), recognised by their header,
            and kernel_ops.py, which makes ops of them
kineto/     traces of PyTorch's profiler
onnx/       models as ONNX files
"""
