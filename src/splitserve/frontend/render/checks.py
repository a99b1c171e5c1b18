"""What must hold between a request's fields, beyond each field's own form."""

from splitserve.errors import CallerError
from splitserve.protocol.openai.chat import ChatRequest
from splitserve.protocol.openai.completions import CompletionRequest
from splitserve.protocol.openai.responses import ResponsesRequest
from splitserve.protocol.openai.sampling import SamplingFields


def check_model(asked: str | None, served: str) -> None:
    """Raises CallerError (404) for another model's name."""
    if asked is not None and asked != served:
        raise CallerError(
            f"the model '{asked[:256]}' does not exist here",
            param="model",
            status=404,
            code="model_not_found",
        )


def check_choices(n: int, prompts: int, most: int) -> None:
    """Raises CallerError for more than ``most`` answers."""
    choices = n * prompts
    if choices > most:
        raise CallerError(
            f"'n' times the number of prompts is {choices}; the limit is {most}", param="n"
        )


def check_shared(request: SamplingFields) -> None:
    """Fields of every request for an answer."""
    if request.stream_options is not None and not request.stream:
        raise CallerError("'stream_options' needs 'stream'", param="stream_options")
    refuse_beside("use_beam_search", request.use_beam_search, False)


def check_chat(request: ChatRequest) -> None:
    """Fields of a chat."""
    if request.top_logprobs is not None and not request.logprobs:
        raise CallerError("'top_logprobs' needs 'logprobs': true", param="top_logprobs")
    refuse_beside("modalities", request.modalities, ["text"])


def check_completion(request: CompletionRequest) -> None:
    """Fields of a completion."""
    if request.best_of is not None and request.best_of != (request.n or 1):
        raise CallerError("'best_of' other than 'n' is not supported", param="best_of")
    if request.echo and request.logprobs is not None:
        raise CallerError("'echo' together with 'logprobs' is not supported yet", param="echo")


def check_response(request: ResponsesRequest) -> None:
    """Fields of a response: it is made at once, and alone."""
    refuse_beside("background", request.background, False)
    refuse_beside("n", request.n, 1)


def refuse_beside(param: str, value: object, supported: object) -> None:
    """Raises CallerError for any value but None and the one that is supported."""
    if value is not None and value != supported:
        raise CallerError(
            f"'{param}': {value!r:.64} is not supported yet",
            param=param,
            code="unsupported_parameter",
        )
