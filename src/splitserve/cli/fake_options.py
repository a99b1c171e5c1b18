"""Flags of the fake engine: how long it takes, and its pool."""

from typing import Annotated

import typer

StepMs = Annotated[
    float,
    typer.Option("--fake-step-ms", help="Fake engine: each step takes this long."),
]
PrefillUs = Annotated[
    float,
    typer.Option("--fake-prefill-us-per-token", help="Fake engine: and this per prompt token."),
]
DecodeUs = Annotated[
    float,
    typer.Option("--fake-decode-us-per-seq", help="Fake engine: and this per running answer."),
]
NumBlocks = Annotated[int, typer.Option("--fake-num-blocks", help="Fake engine: KV blocks it has.")]
NumKVHeads = Annotated[
    int, typer.Option("--fake-num-kv-heads", help="Fake engine: KV heads of its blocks.")
]
