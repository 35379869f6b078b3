"""Token ids are added by the driver, and only prompts that might be too long are tokenised up front."""

from __future__ import annotations

from rlvr.driver.prompts import SEAM_ALLOWANCE, lengths, with_token_ids
from rlvr.records import Prompt


def encode(prompt: Prompt) -> tuple[int, ...]:
    return tuple((prompt.text or "".join(m["content"] for m in prompt.messages or ())).encode())


def test_token_ids_are_added_once():
    prompt = with_token_ids(Prompt(id="a", reference="1", text="hi"), encode)
    assert prompt.token_ids == (104, 105)
    assert with_token_ids(prompt, lambda _: (0,)) is prompt


def test_only_doubtful_prompts_are_tokenised():
    seen: list[str] = []

    def counting(prompt: Prompt) -> tuple[int, ...]:
        seen.append(prompt.id)
        return encode(prompt)

    short = Prompt(id="short", reference="1", text="a" * 10)
    long = Prompt(id="long", reference="1", text="b" * 101)
    assert lengths([short, long], counting, 100) == [10 + SEAM_ALLOWANCE, 101]
    assert seen == ["long"]


def test_what_all_prompts_begin_with_is_tokenised_once():
    seen: list[str] = []

    def counting(prompt: Prompt) -> tuple[int, ...]:
        seen.append(prompt.id)
        return encode(prompt)

    exemplars = "Question: 1 + 1?\nAnswer: 2\n\n" * 20
    prompts = [Prompt(id=str(n), reference="1", text=f"{exemplars}Question: {n}?") for n in range(50)]
    found = lengths(prompts, counting, len(exemplars) + 64)
    assert seen == ["prefix"]
    assert all(bound >= len(encode(prompt)) for bound, prompt in zip(found, prompts, strict=True))


def test_a_bound_is_never_below_the_length():
    texts = ["", "plain", "¿cuánto es ½ + ½?", "\ud800 lone surrogate"]
    as_chat = [Prompt(id="a", reference="1", messages=({"role": "user", "content": text},)) for text in texts]
    as_text = [Prompt(id="a", reference="1", text=text) for text in texts]
    for prompts in (as_chat, as_text):
        found = lengths(prompts, bytes_of, 10_000)
        assert all(bound >= len(bytes_of(prompt)) for bound, prompt in zip(found, prompts, strict=True))


def bytes_of(prompt: Prompt) -> tuple[int, ...]:
    text = prompt.text if prompt.text is not None else "".join(m["content"] for m in prompt.messages or ())
    return tuple(text.encode("utf-8", errors="surrogatepass"))
