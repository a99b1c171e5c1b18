"""The runner for NVIDIA GPUs: FlashInfer, CUDA graphs, and a few kernels of its own (Triton)."""
