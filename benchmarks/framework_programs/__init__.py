"""Training scripts in each framework's words, and the cases that they train.

benchmarks/framework_memory.py captures them, benchmarks/device_memory.py runs some on a GPU.
"""
