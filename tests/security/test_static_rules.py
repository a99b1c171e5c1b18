"""What no line of the source may do: turn bytes or text that came from outside into code."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "splitserve"

UNSAFE_MODULES = frozenset(
    {"pickle", "_pickle", "cPickle", "cloudpickle", "dill", "jsonpickle", "marshal", "shelve"}
    | {"joblib", "yaml", "telnetlib", "xmlrpc", "code", "codeop"}
)
UNSAFE_CALLS = frozenset({"eval", "exec", "compile", "__import__"})
UNSAFE_METHODS = frozenset({"recv_pyobj", "send_pyobj", "import_string", "loads_unsafe"})
"""Of any object: ZeroMQ's pickling sockets."""

PIPES_OF = "multiprocessing"
PICKLING_PIPE_METHODS = frozenset({"send", "recv"})
"""Of a multiprocessing connection, whose ``send_bytes`` and ``recv_bytes`` move bytes only."""


def trees() -> dict[Path, ast.Module]:
    return {
        path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(SOURCE.rglob("*.py"))
    }


def violations(tree: ast.Module) -> Iterator[str]:
    """What ``tree`` does that it must not, a line each."""
    pipes = PIPES_OF in set(imported(tree))
    for name in imported(tree):
        if name in UNSAFE_MODULES:
            yield f"imports {name}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield from wrong_call(node, pipes=pipes)
        if isinstance(node, ast.Attribute) and node.attr == "__reduce__":
            yield f"line {node.lineno}: __reduce__"


def imported(tree: ast.Module) -> Iterator[str]:
    """Top-level names of all modules that are imported, wherever in the file."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module.partition(".")[0]


def wrong_call(call: ast.Call, *, pipes: bool) -> Iterator[str]:
    match call.func:
        case ast.Name(name) if name in UNSAFE_CALLS:
            yield f"line {call.lineno}: {name}()"
        case ast.Attribute(attr=name) if name in UNSAFE_METHODS:
            yield f"line {call.lineno}: {name}()"
        case ast.Attribute(attr=name) if pipes and name in PICKLING_PIPE_METHODS:
            yield f"line {call.lineno}: {name}() in a file with multiprocessing pipes"
        case ast.Attribute(value=ast.Name("torch"), attr="load") if not weights_only(call):
            yield f"line {call.lineno}: torch.load without weights_only=True"
        case ast.Attribute(value=ast.Name("subprocess" | "os"), attr="system" | "popen"):
            yield f"line {call.lineno}: a shell"
    if any(word.arg == "shell" for word in call.keywords):
        yield f"line {call.lineno}: a shell"
    if any(word.arg == "allow_pickle" for word in call.keywords):
        yield f"line {call.lineno}: allow_pickle"


def weights_only(call: ast.Call) -> bool:
    return any(
        word.arg == "weights_only" and isinstance(word.value, ast.Constant) and word.value.value
        for word in call.keywords
    )


def test_no_source_file_runs_or_unpickles_what_it_is_given() -> None:
    found = {
        str(path.relative_to(SOURCE)): list(violations(tree)) for path, tree in trees().items()
    }
    assert len(found) > 100
    assert {name: wrongs for name, wrongs in found.items() if wrongs} == {}


@pytest.mark.parametrize(
    "code",
    [
        "import pickle",
        "from pickle import loads",
        "def f():\n    import marshal",
        "import os.path, shelve",
        "eval(x)",
        "exec(x)",
        "import yaml",
        "socket.recv_pyobj()",
        "import torch\ntorch.load(f)",
        "import torch\ntorch.load(f, weights_only=False)",
        "import multiprocessing\npipe.recv()",
        "from multiprocessing.connection import Connection\npipe.send(x)",
        "os.system(x)",
        "subprocess.run(x, shell=True)",
        "numpy.load(f, allow_pickle=True)",
    ],
)
def test_the_rule_sees_each_of_them(code: str) -> None:
    assert list(violations(ast.parse(code))) != []


@pytest.mark.parametrize(
    "code",
    [
        "import torch\ntorch.load(f, weights_only=True)",
        "re.compile(x)",
        "port.send(x)",
        "from multiprocessing.connection import Connection\npipe.send_bytes(x)",
    ],
)
def test_the_rule_lets_the_rest_be(code: str) -> None:
    assert list(violations(ast.parse(code))) == []
