"""Which sampling settings let an answer begin at one vLLM instance and go on at another. Pure.

The decode leg gets the original prompt and draws the first token anew. Greedy choices and seeded
draws come out the same there: vLLM seeds a request's own stream of random numbers with ``seed``,
whatever else is in the batch, so that only rounding can tell the two tokens apart. If they differ
all the same, decode has to go on after the token that the client has: its leg is given up and the
prompt with that token behind it is computed anew. That replay is what has to be exact:

- greedy and seeded sampling, ``logit_bias``, ``min_tokens``, stop tokens and ``repetition_penalty``
  (it counts the prompt too) do not notice that a token of the answer stands in the prompt; seeded
  draws go on with fresh positions where vLLM keys them by position (its newer runner), and begin
  the seed's stream again where it does not (valid draws, but other ones);
- ``presence_penalty`` and ``frequency_penalty`` count the answer's tokens alone: they would forget
  those in the prompt;
- a grammar would begin anew in the middle of the answer.

Log-probabilities of the first token are prefill's, of all others decode's: the same up to rounding.
"""

from splitserve.protocol.sampling import SamplingParams


def first_token_at_once(sampling: SamplingParams) -> bool:
    """Whether prefill's first token may go to the client before decode has drawn the same."""
    counts_answer = sampling.presence_penalty != 0.0 or sampling.frequency_penalty != 0.0
    return replayable(sampling) and not counts_answer


def replayable(sampling: SamplingParams) -> bool:
    """Whether an answer can go on after tokens that now stand in the prompt. Penalties on the
    answer's own tokens forget those then, which is better than no answer."""
    return sampling.structured_outputs is None
