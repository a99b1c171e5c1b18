import struct
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from gguf_samples import write_gguf
from hypothesis import given, settings
from hypothesis import strategies as st

from splitserve.errors import ConfigError
from splitserve.modelstore.gguf_header import read_header


def test_metadata_and_tensors_equal_the_gguf_packages_reading(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", tied=False, dtype=np.float16)

    header = read_header(path)

    reference = gguf.GGUFReader(path)
    expected = {
        key: value.contents()
        for key, value in reference.fields.items()
        if not key.startswith("GGUF.")
    }
    assert header.metadata == expected
    assert {
        (info.name, info.shape, info.ggml_type, info.offset) for info in header.tensors.values()
    } == {
        (
            tensor.name,
            tuple(int(dim) for dim in reversed(tensor.shape)),
            int(tensor.tensor_type),
            int(tensor.data_offset),
        )
        for tensor in reference.tensors
    }


_SCALARS = st.one_of(
    st.booleans(),
    st.integers(-(2**31), 2**31 - 1),
    st.floats(width=32, allow_nan=False),
    st.text(max_size=20),
)
_ARRAYS = st.one_of(
    st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=5),
    st.lists(st.text(max_size=8), min_size=1, max_size=5),
    st.lists(st.booleans(), min_size=1, max_size=5),
)


@settings(max_examples=40, deadline=None)
@given(values=st.dictionaries(st.text(min_size=1, max_size=12), _SCALARS | _ARRAYS, max_size=6))
def test_any_metadata_reads_back_as_written(
    tmp_path_factory: pytest.TempPathFactory, values: dict[str, Any]
) -> None:
    path = tmp_path_factory.mktemp("gguf") / "m.gguf"
    values = {f"x.{key}": value for key, value in values.items()}
    writer = gguf.GGUFWriter(path, "llama")
    for key, value in values.items():
        kind = gguf.GGUFValueType.get_type(value)
        writer.add_key_value(key, value, kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()

    header = read_header(path)

    assert header.metadata == {"general.architecture": "llama"} | values


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_a_header_cut_anywhere_is_reported_in_one_line(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("cut")
    whole = write_gguf(folder / "m.gguf")
    first_weight = min(info.offset for info in read_header(whole).tensors.values())
    content = whole.read_bytes()
    # Padding before the first weight may go without harm to the header.
    length = data.draw(st.integers(5, first_weight - 32))
    (folder / "cut.gguf").write_bytes(content[:length])

    with pytest.raises(ConfigError) as caught:
        read_header(folder / "cut.gguf")

    assert "cut.gguf is cut short or damaged" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"\x08\0\0\0\0\0\0\0{}      ")

    with pytest.raises(ConfigError, match="is no GGUF file"):
        read_header(path)


def test_an_unknown_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 9, 0, 0))

    with pytest.raises(ConfigError, match="GGUF version 9: convert it to version 3"):
        read_header(path)


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        read_header(tmp_path / "none.gguf")


def test_an_unknown_value_type_is_reported_as_damage(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    key = struct.pack("<Q", 1) + b"k"
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + key + struct.pack("<I", 77))

    with pytest.raises(ConfigError, match="unknown value type 77"):
        read_header(path)


def test_a_number_that_differs_by_layer_is_no_integer(tmp_path: Path) -> None:
    def change(writer: gguf.GGUFWriter) -> None:
        writer.add_array("x.same", [3, 3])
        writer.add_array("x.different", [3, 4])

    header = read_header(write_gguf(tmp_path / "m.gguf", change=change))

    assert header.integer("x.same") == 3
    assert header.integer("x.different") is None
