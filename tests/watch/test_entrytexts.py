"""Labels and accounts of a compiled list behave as a dict does, whatever changes."""

from __future__ import annotations

import random
from array import array

import pytest

from spvfilter.watch.entrytexts import RUN, EntryAccounts, EntryLabels, EntryTexts
from support.vectors import effort

TEXTS = ("Alice", "Bob & Söhne", "日本")


def labels(rng: random.Random) -> tuple[EntryLabels, dict[int, str]]:
    model = {entry: rng.choice(TEXTS) for entry in sorted(rng.sample(range(40), rng.randrange(40)))}
    ends, texts = array("I"), b""
    for text in model.values():
        texts += text.encode()
        ends.append(len(texts))
    entries = memoryview(array("I", model).tobytes()).cast("I")
    return EntryLabels(entries, memoryview(ends.tobytes()).cast("I"), memoryview(texts)), model


def accounts(rng: random.Random) -> tuple[EntryAccounts, dict[int, str]]:
    model, runs, first = dict[int, str](), b"", 0
    while (first := first + rng.randrange(3)) < 40:
        count, name = rng.randint(1, 6), rng.randrange(3)
        runs += RUN.pack(first, count, name)
        model |= dict.fromkeys(range(first, first + count), TEXTS[name])
        first += count
    return EntryAccounts(memoryview(runs), TEXTS), model


def same(made: EntryTexts, model: dict[int, str]) -> bool:
    found = [made.get(entry) for entry in range(-2, 60)]
    return (
        dict(made.items()) == dict(made) == model
        and len(made) == len(model)
        and bool(made) == bool(model)
        and found == [model.get(entry) for entry in range(-2, 60)]
        and 1 << 40 not in made
    )


@pytest.mark.parametrize("kind", [labels, accounts])
@pytest.mark.parametrize("seed", range(effort(20, 100, 1_000)))
def test_changed_texts_are_those_of_a_dict(seed: int, kind: object) -> None:
    rng = random.Random(seed)
    made, model = (labels if kind is labels else accounts)(rng)
    assert same(made, model)
    before, known = made.copy(), model.copy()
    for _ in range(rng.randrange(30)):
        entry = rng.randrange(45)
        if rng.randrange(2):
            made[entry] = model[entry] = rng.choice(TEXTS)
        else:
            assert made.pop(entry, None) == model.pop(entry, None)
        assert same(made, model)
    assert same(before, known)
    assert same(made.copy(), model)
    with pytest.raises(KeyError):
        del made[70]
