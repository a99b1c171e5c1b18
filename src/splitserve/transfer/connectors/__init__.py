"""One file per way to move KV."""
