from splitserve.router.workers.agreement import disagreements


def test_the_one_that_differs_is_left_out_with_key_and_both_values() -> None:
    problems = disagreements(
        {}, [("p", {"dtype": "bf16", "hash": "1"}), ("d", {"dtype": "fp32", "hash": "1"})]
    )
    assert problems == {"d": "fingerprint differs: dtype is 'fp32', 'bf16' at p"}


def test_the_gateways_own_values_come_first() -> None:
    problems = disagreements({"hash": "2"}, [("p", {"hash": "1"}), ("d", {"hash": "2"})])
    assert problems == {"p": "fingerprint differs: hash is '1', '2' at this gateway"}


def test_keys_that_only_one_side_has_do_not_matter() -> None:
    assert disagreements({"parser": "x"}, [("p", {"a": "1"}), ("d", {"b": "1"})]) == {}


def test_a_refused_worker_sets_no_standard_for_those_after_it() -> None:
    problems = disagreements(
        {"a": "1"}, [("bad", {"a": "2", "b": "2"}), ("good", {"a": "1", "b": "1"})]
    )
    assert list(problems) == ["bad"]
