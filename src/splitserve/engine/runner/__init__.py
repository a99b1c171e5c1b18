"""Between the engine's rows and the model's tensors: planning a step, choosing its tokens."""
