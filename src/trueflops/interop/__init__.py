"""Other tools' files, read and written.

kernels.py  tables of kernels (matmul, attention, experts, collectives), recognised by their header,
            and kernel_ops.py, which makes ops of them; memory_ops.py: memory-bound ones
calls.py    rows that are calls of ATen ops, lowered as captured ones are
kineto/     traces of PyTorch's profiler
onnx/       models as ONNX files
engines/    commands and files with which vLLM, SGLang, TensorRT-LLM, llama.cpp, Dynamo start
shell_text.py  lines of a shell script as commands and words; variables.py: those that it sets
launch/     files with which Megatron-LM, torchtitan, DeepSpeed … start a plan, written and read
"""
