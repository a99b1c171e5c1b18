"""The lab: decide by measurement whether splitting prefill and decode pays."""
