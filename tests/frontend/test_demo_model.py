"""The demo model's own tokenizer and template."""

import pytest
from openai import OpenAI

from frontend.conftest import Serve
from frontend.scripted import ScriptedGenerator, saying
from splitserve.frontend.derender.detokenize import detokenizer
from splitserve.frontend.model import ServedModel
from splitserve.modelstore.folder import ModelFolder
from splitserve.modelstore.resolve import resolve

pytestmark = pytest.mark.model

TEXT = "Split serving: prefill → decode, 한국어, 日本語, 👩‍👩‍👧 and naïve café.\n\tEnd."


@pytest.fixture(scope="module")
def folder() -> ModelFolder:
    return resolve("smollm2")


@pytest.fixture(scope="module")
def smollm(folder: ModelFolder) -> ServedModel:
    return ServedModel.load(folder)


def test_its_text_round_trips_through_streaming(smollm: ServedModel) -> None:
    ids = smollm.tokenizer.encode_prompt(TEXT)
    state = detokenizer(smollm.tokenizer, skip_special=True)
    pieces = [*(state.feed(token_id) for token_id in ids), state.finish()]
    assert "".join(pieces) == TEXT == smollm.tokenizer.decode(ids, skip_special=True)
    assert not any("\ufffd" in piece for piece in pieces)


def test_its_chat_prompt_equals_transformers(folder: ModelFolder, smollm: ServedModel) -> None:
    from transformers import PreTrainedTokenizerFast

    reference = PreTrainedTokenizerFast(
        tokenizer_file=str(folder.tokenizer_path), **folder.special_tokens()
    )
    chat = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
    chat.append({"role": "user", "content": TEXT})
    assert smollm.template is not None
    text = smollm.template.render(chat, add_generation_prompt=True, extra={})
    theirs = reference.apply_chat_template(
        chat,
        chat_template=folder.chat_template(),
        add_generation_prompt=True,
        return_dict=False,
    )
    assert list(smollm.tokenizer.encode_rendered(text)) == theirs


def test_a_chat_through_the_server(serve: Serve, smollm: ServedModel) -> None:
    generator = ScriptedGenerator(saying(smollm.tokenizer.encode_prompt(TEXT)))
    live = serve(generator, of=smollm)
    with OpenAI(base_url=f"{live.url}/v1", api_key="none", max_retries=0) as client:
        events = client.chat.completions.create(
            model=smollm.name, messages=[{"role": "user", "content": "Hi"}], stream=True
        )
        assert "".join(event.choices[0].delta.content or "" for event in events) == TEXT
