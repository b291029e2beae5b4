"""Training scripts in each framework's words, captured by benchmarks/framework_memory.py."""
