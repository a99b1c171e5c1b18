"""How each of vLLM's KV connectors wants a split request put. Pure: one small module each."""
