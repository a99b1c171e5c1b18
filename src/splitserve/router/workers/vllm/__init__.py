"""vLLM instances as workers: one client for each, told apart from native ones by nothing above."""
