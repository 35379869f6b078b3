"""Token ids are added by the driver, and only prompts that might be too long are tokenised up front."""

from __future__ import annotations

from rlvr.driver.prompts import TEMPLATE_ALLOWANCE_BYTES, length_bound, lengths, with_token_ids
from rlvr.records import Prompt


def encode(prompt: Prompt) -> tuple[int, ...]:
    return tuple((prompt.text or "".join(m["content"] for m in prompt.messages or ())).encode())


def test_token_ids_are_added_once():
    prompt = with_token_ids(Prompt(id="a", reference="1", text="hi"), encode)
    assert prompt.token_ids == (104, 105)
    assert with_token_ids(prompt, lambda _: (0,)) is prompt


def test_the_bound_is_never_below_the_length():
    for text in ("", "plain", "¿cuánto es ½ + ½?", "\ud800 lone surrogate"):
        prompt = Prompt(id="a", reference="1", messages=({"role": "user", "content": text},))
        assert length_bound(prompt) >= len(text.encode("utf-8", errors="surrogatepass"))


def test_only_doubtful_prompts_are_tokenised():
    seen: list[str] = []

    def counting(prompt: Prompt) -> tuple[int, ...]:
        seen.append(prompt.id)
        return encode(prompt)

    short = Prompt(id="short", reference="1", text="x" * 10)
    long = Prompt(id="long", reference="1", text="x" * (TEMPLATE_ALLOWANCE_BYTES + 1))
    found = lengths([short, long], counting, TEMPLATE_ALLOWANCE_BYTES + 100)
    assert seen == ["long"]
    assert found[1] == TEMPLATE_ALLOWANCE_BYTES + 1
    assert found[0] <= TEMPLATE_ALLOWANCE_BYTES + 100
