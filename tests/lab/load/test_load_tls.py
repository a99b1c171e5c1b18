"""HTTPS, against a server with a certificate of its own."""

import shutil
import ssl
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from splitserve.clock import monotonic
from splitserve.lab.load.client import Labels, LoadClient
from splitserve.lab.load.record import Outcome, RequestRecord
from splitserve.lab.load.request import Asking, LoadRequest
from splitserve.lab.load.wire.exchange import Limits
from splitserve.lab.load.wire.target import Target, resolve
from splitserve.lab.mock.case import DONE, completion, event, script_of, total
from splitserve.lab.mock.server import MockServer

SAID = [event(completion("a", 1)), event(completion("b", 1, "stop")), total(2), DONE]
ANSWER = script_of(SAID, pace_s=0.0)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of 127.0.0.1, signed by itself, with its key in the same file."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("there is no openssl to make a certificate with")
    folder = tmp_path_factory.mktemp("tls")
    key, made = folder / "key.pem", folder / "certificate.pem"
    asked = ("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=lab")
    files = ("-keyout", str(key), "-out", str(made))
    subprocess.run(
        [openssl, *asked, "-addext", "subjectAltName=IP:127.0.0.1", *files],
        check=True,
        capture_output=True,
    )
    made.write_text(made.read_text() + key.read_text())
    return made


def serving(certificate: Path) -> MockServer:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return MockServer(lambda *_: ANSWER, tls=context)


async def asked(target: Target, *ids: str) -> list[RequestRecord]:
    client = LoadClient(target, Asking("m"), Labels("A", "1", monotonic()), Limits())
    try:
        return [await client.send(LoadRequest(name, (101,), 2), 0.0) for name in ids]
    finally:
        client.close()


async def test_answers_over_tls_are_read_and_its_connection_is_kept(certificate: Path) -> None:
    async with serving(certificate) as server:
        target = await resolve(server.url)
        assert target.tls is not None
        trusting = replace(target, tls=ssl.create_default_context(cafile=str(certificate)))
        records = await asked(trusting, "1", "2")
    assert [record.outcome for record in records] == [Outcome.OK] * 2
    assert [count for _, count in records[0].events if count] == [1, 1]
    assert records[1].reused_connection


async def test_a_certificate_that_nobody_vouches_for_is_not_talked_to(certificate: Path) -> None:
    async with serving(certificate) as server:
        (record,) = await asked(await resolve(server.url), "1")
        assert not server.played
    assert record.outcome is Outcome.CONNECT_ERROR
    assert "certificate" in record.error
