import pytest
from hypothesis import given
from hypothesis import strategies as st

from splitserve.launch.sizes import format_size, parse_size


@pytest.mark.parametrize(
    ("written", "nbytes"),
    [
        (17, 17),
        ("17", 17),
        ("17B", 17),
        ("512MiB", 512 << 20),
        ("1 GiB", 1 << 30),
        ("1.5gib", 3 << 29),
        ("2GB", 2 * 10**9),
        ("3 kb", 3000),
        ("1TiB", 1 << 40),
    ],
)
def test_sizes_are_read_as_people_write_them(written: object, nbytes: int) -> None:
    assert parse_size(written) == nbytes


@pytest.mark.parametrize("written", ["", "MiB", "1x", "-1", "1 2", "1e3", 1.5, True, None, "1MiBs"])
def test_anything_else_is_refused(written: object) -> None:
    with pytest.raises(ValueError, match="is not a size"):
        parse_size(written)


@given(st.integers(min_value=0, max_value=1 << 50))
def test_a_number_of_bytes_stays_what_it_is(nbytes: int) -> None:
    assert parse_size(nbytes) == parse_size(str(nbytes)) == nbytes


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (23040, "22.5 KiB"),
        (1 << 20, "1 MiB"),
        ((1 << 30) - (1 << 18), "1024 MiB"),
        (3 << 29, "1.5 GiB"),
        (900 << 40, "921600 GiB"),
    ],
)
def test_sizes_are_shown_in_the_unit_that_fits(nbytes: int, text: str) -> None:
    assert format_size(nbytes) == text
