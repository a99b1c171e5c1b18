"""The way back from the split to the single configuration: made under load, and proved."""
