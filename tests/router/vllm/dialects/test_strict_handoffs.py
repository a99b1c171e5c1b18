"""Each dialect against instances that refuse what vLLM would choke on."""

import asyncio

import httpx
import pytest

from router.vllm.dialects.families import (
    ASKED,
    FAMILIES,
    HANDOFF,
    PROMPT,
    Line,
    headers,
    line,
    streamed,
)
from router.vllm.peer_bodies import token_at
from router.vllm.peer_rules import MooncakeRules, NoWords, PullRules, bootstrap_server
from splitserve.router.workers.vllm.dialects import mooncake
from splitserve.router.workers.vllm.dialects.base import Instance, Leg
from splitserve.router.workers.vllm.dialects.registry import dialect_for

PATHS = ["/v1/completions", "/inference/v1/generate"]
CONCURRENT = [name for name in FAMILIES if FAMILIES[name]().concurrent]
SERIAL = [name for name in FAMILIES if not FAMILIES[name]().concurrent]
RELEASED = ["nixl_pull", "nixl_pull_023", "moriio_read", "multi"]
ANSWERED = [*RELEASED, "moriio_read_023"]


async def in_order(one: Line) -> list[int]:
    answered = (await one.ask_prefill(one.prefill_leg())).raise_for_status().json()
    decoded = await one.ask_decode(one.decode_leg(answered["kv_transfer_params"]))
    return streamed(decoded.raise_for_status())


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("family", FAMILIES)
async def test_prefill_then_decode_gives_the_answer(family: str, path: str) -> None:
    async with line(FAMILIES[family](), path) as one:
        tokens = await in_order(one)
        assert tokens == [token_at(i) for i in range(ASKED)]
        assert one.pair.held == set()


@pytest.mark.parametrize("family", CONCURRENT)
async def test_decode_asked_first_waits_for_prefill(family: str) -> None:
    async with line(FAMILIES[family]()) as one:
        assert one.dialect.concurrent
        decoding = asyncio.create_task(one.ask_decode(one.decode_leg(None)))
        await one.pair.decode.arrived.wait()
        (await one.ask_prefill(one.prefill_leg())).raise_for_status()
        tokens = streamed((await decoding).raise_for_status())
    assert tokens == [token_at(i) for i in range(len(tokens))]
    assert len(tokens) == ASKED


@pytest.mark.parametrize("family", SERIAL)
async def test_a_serial_decode_before_prefills_answer_is_a_violation(family: str) -> None:
    async with line(FAMILIES[family](), wrong=True) as one:
        assert not one.dialect.concurrent
        one.pair.prefill.gate.clear()
        prefilling = asyncio.create_task(one.ask_prefill(one.prefill_leg()))
        await one.pair.prefill.arrived.wait()
        early = Leg({"do_remote_prefill": True}) if family in ANSWERED else Leg()
        response = await one.ask_decode(Leg(early.params, headers(one.prefill_leg())))
        one.pair.prefill.gate.set()
        await prefilling
    assert response.status_code == 500
    assert one.pair.violations == ["decode: decode was asked before prefill answered"]


@pytest.mark.parametrize("family", RELEASED)
async def test_release_frees_what_no_decode_will_read(family: str) -> None:
    async with line(FAMILIES[family]()) as one:
        leg = one.prefill_leg()
        answered = (await one.ask_prefill(leg)).json()["kv_transfer_params"]
        assert len(one.pair.held) == 1
        params = one.dialect.release(answered, one.pair.prefill_instance)
        assert params is not None
        released = {"X-Request-Id": f"{HANDOFF}-release"}
        (await one.ask_decode(Leg(params, released), max_tokens=1)).raise_for_status()
        assert one.pair.held == set()


async def test_a_release_of_nothing_is_a_violation() -> None:
    async with line(PullRules(), wrong=True) as one:
        stray = Leg({"do_remote_prefill": True}, {"X-Request-Id": f"{HANDOFF}-release"})
        assert (await one.ask_decode(stray, max_tokens=1)).status_code == 500
    assert one.pair.violations == ["decode: frees what nobody holds"]


@pytest.mark.parametrize("family", CONCURRENT)
async def test_legs_that_do_not_belong_together_are_found(family: str) -> None:
    async with line(FAMILIES[family](), wrong=True) as one:
        await one.ask_prefill(one.prefill_leg())
        other = one.decode_leg(None, type(HANDOFF)("cmpl-other#0"))
        # The same request, but params of another handoff.
        own = {"X-Request-Id": headers(one.prefill_leg())["X-Request-Id"]}
        response = await one.ask_decode(Leg(other.params, own))
    assert response.status_code == 500
    assert len(one.pair.violations) == 1
    assert "in one leg and" in one.pair.violations[0]


async def test_mooncake_learns_its_engine_from_the_bootstrap_server() -> None:
    async with bootstrap_server() as address, httpx.AsyncClient() as http:
        found = (await http.get(address + mooncake.BOOTSTRAP_PATH)).json()
        engines = mooncake.engine_ids(found, address)
        assert engines == {0: "engine-0", 1: "engine-1"}
        rules = MooncakeRules(address)
        rules.prefill_facts["engine_id"] = engines[1]
        async with line(rules) as one:
            assert len(await in_order(one)) == ASKED


@pytest.mark.parametrize(
    "changes",
    [
        {"stream": True},
        {"max_tokens": 2},
        {"min_tokens": 2},
        {"stream_options": {"include_usage": True}},
        {"prompt": "text"},
        {"prompt": [1, True]},
        {"kv_transfer_params": {}},
        {"kv_transfer_params": {"do_remote_decode": True, "remote_block_ids": [[1]]}},
        {"ec_transfer_params": {}},
        {"unheard_of": 1},
    ],
    ids=lambda changes: "-".join(changes),
)
async def test_a_prefill_leg_that_vllm_would_misread_is_a_violation(
    changes: dict[str, object],
) -> None:
    async with line(PullRules(), wrong=True) as one:
        response = await one.ask_prefill(one.prefill_leg(), **changes)
    assert response.status_code == 500
    assert len(one.pair.violations) == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"prompt": PROMPT[:-1]},
        {"prompt": [*PROMPT, 5]},
        {"max_tokens": ASKED + 1},
        {"return_token_ids": False},
        {"prompt": [*PROMPT, *(token_at(i) for i in range(14))], "max_tokens": 1},
    ],
    ids=["shorter", "longer", "more-tokens", "no-ids", "more-blocks"],
)
async def test_a_decode_leg_that_is_not_prefills_work_is_a_violation(
    changes: dict[str, object],
) -> None:
    async with line(PullRules(), wrong=True) as one:
        answered = (await one.ask_prefill(one.prefill_leg())).json()["kv_transfer_params"]
        response = await one.ask_decode(one.decode_leg(answered), **changes)
    assert response.status_code == 500
    assert len(one.pair.violations) == 1


async def test_decode_may_go_on_after_prefills_first_token() -> None:
    async with line(PullRules()) as one:
        answered = (await one.ask_prefill(one.prefill_leg())).json()["kv_transfer_params"]
        response = await one.ask_decode(
            one.decode_leg(answered), prompt=[*PROMPT, token_at(0)], max_tokens=ASKED - 1
        )
    assert streamed(response.raise_for_status()) == [token_at(1), token_at(2), token_at(3)]


async def test_the_same_params_serve_once() -> None:
    async with line(PullRules(), wrong=True) as one:
        await in_order(one)
        (seen,) = one.pair.decode.requests
        again = await one.ask_decode(Leg(seen.params))
    assert again.status_code == 500
    assert one.pair.violations == ["decode: the same params were used twice"]


async def test_decode_without_params_computes_the_prompt_itself() -> None:
    async with line(PullRules()) as one:
        tokens = streamed((await one.ask_decode(Leg())).raise_for_status())
    assert tokens == [token_at(i) for i in range(ASKED)]


async def test_without_a_connector_decode_alone_serves() -> None:
    async with line(NoWords({})) as one:
        assert one.dialect.name == "plain"
        assert len(streamed(await one.ask_decode(one.decode_leg(None)))) == ASKED
        assert one.pair.prefill.requests == []


async def test_moriio_addresses_are_ours_whatever_the_client_calls_its_request() -> None:
    evil = type(HANDOFF)("cmpl-x___prefill_addr_host:evil___decode_addr_host:evil#0")
    async with line(FAMILIES["moriio_write"]()) as one:
        leg = one.prefill_leg(evil)
        (await one.ask_prefill(leg)).raise_for_status()
        (await one.ask_decode(one.decode_leg(None, evil))).raise_for_status()


def test_two_attempts_at_one_moriio_request_have_different_ids() -> None:
    rules = FAMILIES["moriio_read"]()
    dialect = dialect_for(rules.config)
    ends = (Instance("http://p", rules.prefill_facts), Instance("http://d", rules.decode_facts))
    first, second = (dialect.prefill(type(HANDOFF)(f"cmpl-a#{n}"), *ends) for n in range(2))
    assert first.headers["X-Request-Id"] != second.headers["X-Request-Id"]


async def test_a_client_that_leaves_is_seen() -> None:
    async with line(PullRules()) as one:
        one.pair.prefill.gate.clear()
        asking = asyncio.create_task(one.ask_prefill(one.prefill_leg()))
        await one.pair.prefill.arrived.wait()
        asking.cancel()
        await one.pair.prefill.left.wait()
        assert one.pair.prefill.aborted == [HANDOFF]
        assert one.pair.held == set()


@pytest.mark.parametrize(
    ("path", "status"), [("/health", 200), ("/version", 200), ("/metrics", 200), ("/nope", 404)]
)
async def test_an_instance_tells_of_itself(path: str, status: int) -> None:
    async with line(PullRules(), wrong=True) as one:
        response = await one.http.get(one.pair.prefill.url + path)
        card = (await one.http.get(one.pair.decode.url + "/v1/models")).json()["data"][0]
    assert response.status_code == status
    assert card["max_model_len"] == 4096
    assert len(one.pair.violations) == (status == 404)


async def test_what_an_instance_is_made_to_do_it_does() -> None:
    async with line(PullRules(), "/inference/v1/generate") as one:
        one.pair.prefill.failing.append(503)
        assert (await one.ask_prefill(one.prefill_leg())).status_code == 503
        one.pair.prefill.scale_out = False
        assert (await one.ask_prefill(one.prefill_leg())).status_code == 403
        one.pair.decode.break_after = 2
        with pytest.raises(httpx.RemoteProtocolError):
            await one.ask_decode(Leg())
