"""The device's part of connector cuda_ipc. Imports torch, Triton and CUDA's bindings; the connector
loads it when it opens."""
