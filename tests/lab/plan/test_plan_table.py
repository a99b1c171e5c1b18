"""Fixed, may vary, recorded: the five rows with their values."""

from made_plan import CHUNKED, data, plan_of, running, with_arm

from splitserve.lab.plan.table import CLASSES, Row, table


def rows(plan_data: dict[str, object], seen: dict[str, str] | None = None) -> dict[str, Row]:
    return {row.name: row for row in table(plan_of(plan_data), seen)}


def test_the_five_rows_of_the_brief_are_there_in_order() -> None:
    made = table(plan_of(with_arm(CHUNKED)))
    assert tuple(row.name for row in made) == CLASSES
    assert all(row.fixed and row.may_vary and row.recorded for row in made)


def test_values_of_the_plan_stand_in_it() -> None:
    made = rows(data(model__revision="abc"))
    assert dict(made["model"].fixed)["name"] == "smollm2"
    assert dict(made["model"].fixed)["revision"] == "abc"
    assert dict(made["software"].may_vary)["role layout"] == "2 colocated | 1 prefill + 1 decode"
    assert dict(made["software"].fixed)["connector"] == "shm"
    assert dict(made["workload"].fixed)["prompt"] == "L (1024 tokens)"
    assert dict(made["hardware"].fixed)["total"] == "all cores"


def test_of_the_model_nothing_may_vary() -> None:
    assert rows(data())["model"].may_vary == (("nothing", None),)


def test_axes_say_what_varies() -> None:
    made = rows(data(axes=[{"name": "concurrency", "values": [1, 8]}]))
    assert made["workload"].may_vary == (
        ("prompt length", "not varied"),
        ("output length", "not varied"),
        ("concurrency", "1, 8"),
    )


def test_what_was_seen_fills_what_the_plan_cannot_know() -> None:
    seen = {"software.version": "1.2", "model.revision": "abc", "model.name": "other"}
    made = rows(data(), seen)
    assert dict(made["software"].fixed)["version"] == "1.2"
    assert dict(made["software"].fixed)["commit"] is None
    assert dict(made["model"].fixed)["revision"] == "abc"
    assert dict(made["model"].fixed)["name"] == "smollm2"


def test_running_urls_have_what_their_owner_says() -> None:
    made = rows(running())
    assert dict(made["hardware"].fixed)["total"] == "2 GPUs"
    assert dict(made["routing"].fixed)["endpoints"] == (
        "http://127.0.0.1:8000 | http://127.0.0.1:8001"
    )
    assert dict(made["software"].fixed)["connector"] == "NixlConnector"


def test_a_closed_loop_says_its_concurrency() -> None:
    made = rows(data(workload__arrivals={"process": "closed", "concurrency": 8}))
    assert dict(made["workload"].fixed)["concurrency"] == "8"
    assert "load" not in dict(made["workload"].fixed)
