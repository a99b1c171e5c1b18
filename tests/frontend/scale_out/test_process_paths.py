"""What a text tier answers beside its work."""

from frontend.scale_out.rig import PARTS, TOKENIZER, Caller
from splitserve import __version__
from splitserve.frontend.fingerprint import short_fingerprint


async def test_it_names_its_model_and_says_that_it_lives(plain: Caller) -> None:
    models = (await plain.get("/v1/models")).json()
    assert [card["id"] for card in models["data"]] == ["tiny"]
    assert (await plain.get("/v1/models/tiny")).json()["max_model_len"] == 512
    assert (await plain.get("/v1/models/other")).status_code == 404
    assert (await plain.get("/health")).json() == {"status": "alive"}
    assert (await plain.get("/ready")).json() == {"status": "ready", "warnings": []}
    assert (await plain.get("/version")).json() == {"version": __version__}


async def test_its_fingerprint_is_told_in_parts_and_short(plain: Caller) -> None:
    answer = (await plain.get("/fingerprint")).json()
    assert answer == {"text": short_fingerprint(PARTS), "parts": PARTS}


async def test_it_tokenises_and_back(plain: Caller) -> None:
    tokens = (await plain.good("/tokenize", {"prompt": "alpha beta"}))["tokens"]
    assert TOKENIZER.decode(tokens, skip_special=True) == "alpha beta"
    assert (await plain.good("/detokenize", {"tokens": tokens}))["prompt"] == "alpha beta"


async def test_calls_are_counted_by_service_and_outcome(plain: Caller) -> None:
    body = {"messages": [{"role": "user", "content": "hello"}]}
    await plain.good("/v1/chat/completions/render", body)
    await plain.refusal("/v1/completions/derender", {})
    page = (await plain.get("/metrics")).text
    for line in (
        'splitserve_text_calls_total{outcome="ok",service="chat/completions/render"} 1.0',
        'splitserve_text_calls_total{outcome="refused",service="completions/derender"} 1.0',
    ):
        assert line in page


async def test_unknown_paths_and_wrong_methods_have_openais_form(plain: Caller) -> None:
    assert (await plain.refusal("/v1/chat/completions", {}, 404))["code"] == "not_found"
    wrong = await plain.get("/v1/chat/completions/render")
    assert wrong.status_code == 405
    assert wrong.json()["error"]["code"] == "method_not_allowed"


async def test_a_long_body_is_worked_on_in_a_thread_with_the_same_result(plain: Caller) -> None:
    text = "alpha beta gamma delta " * 200
    body = {"messages": [{"role": "user", "content": text}]}
    error = await plain.refusal("/v1/chat/completions/render", body)
    assert error["code"] == "context_length_exceeded"
