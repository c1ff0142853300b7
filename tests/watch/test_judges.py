"""BDK and embit as judges of random descriptors: they accept the same ones, and derive the same scripts."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from spvfilter.errors import ParameterError
from spvfilter.network import MAINNET
from spvfilter.watch.descriptor import parse_descriptor
from support.blocks.miniscripts import RandomMiniscripts
from support.vectors import effort

pytestmark = pytest.mark.descriptors

INDEX = 3
BARE = ("pk(", "multi(", "sortedmulti(")
CONSTANT = re.compile(r"[(,{:][01](?=[,)}])")
"""The fragment 0 or 1, or a number that looks like one."""
TAPSCRIPT_D = re.compile(r"^tr\(.*[{(,][a-z]*d[a-z]*:")

Answer = tuple[bytes | None, str]
"""The script of an index, or None and the error."""


def own(text: str) -> Answer:
    try:
        (found,) = parse_descriptor(text, MAINNET)
        (script,) = found.scripts(INDEX)
    except ParameterError as error:
        return None, str(error)
    return script, ""


def by_bdk(text: str) -> Answer:
    import bdkpython

    bdk: Any = bdkpython
    try:
        descriptor = bdk.Descriptor(text, bdk.NetworkKind.MAIN)
        wallet = bdk.Wallet.create_single(descriptor, bdk.Network.BITCOIN, bdk.Persister.new_in_memory(), 1)
        index = INDEX if "*" in text else 0
        address = wallet.peek_address(bdk.KeychainKind.EXTERNAL, index).address
    except (bdk.DescriptorError, bdk.CreateWithPersistError) as error:
        return None, f"{type(error).__name__} {error}"
    return bytes(address.script_pubkey().to_bytes()), ""


def by_embit(text: str) -> Answer:
    from embit.descriptor import Descriptor

    try:
        script = Descriptor.from_string(text).derive(INDEX).script_pubkey().data
    except Exception as error:  # embit raises errors of many classes
        return None, f"{type(error).__name__} {error}"
    return bytes(script), ""


# Each rule names the program that accepts a descriptor which the other refuses, and the reason. Its function gets the
# descriptor and this package's message.
Rule = Callable[[str, str], bool]
BDK_ACCEPTS: dict[str, Rule] = {
    "BIP-379, Core's IsNotSatisfiable: nobody can spend": lambda text, message: "nobody can ever spend" in message,
    "BIP-379: timelocks below 2^31": lambda text, message: "expected a number from 1 to 2147483647" in message,
    "BIP-389: no number twice in a multipath": lambda text, message: "a number twice" in message,
    "BIP-382 and 386: no uncompressed keys in wsh() and tr()": lambda text, message: (
        "an uncompressed key in" in message
    ),
    "BIP-386: x-only keys only in tr()": lambda text, message: "an x-only key of 64 hex digits" in message,
}
BDK_REFUSES: dict[str, Rule] = {
    "BIP-383 and 387: a multisig alone may repeat a key": lambda text, message: (
        "multi" in text and has_repeated_key(text)
    ),
    "BIP-379: d: has property u in tapscript": lambda text, message: bool(TAPSCRIPT_D.search(text)),
    "BIP-379: thresh() may contain 0": lambda text, message: "thresh(" in text and bool(CONSTANT.search(text)),
}
EMBIT_REFUSES: dict[str, Rule] = {
    "BIP-379: the fragments 0 and 1": lambda text, message: bool(CONSTANT.search(text)),
    "BIP-381 and 383: pk() and multi() alone": lambda text, message: text.startswith(BARE),
}


def has_repeated_key(text: str) -> bool:
    keys = re.findall(r"[xt]pub[0-9A-Za-z/]+", text)
    return len(set(keys)) < len(keys)


def explain(rules: dict[str, Rule], text: str, message: str, judge: str) -> str:
    """The rule that explains a difference. Fails if there is none."""
    found = next((name for name, holds in rules.items() if holds(text, message)), None)
    assert found is not None, f"{judge} decides otherwise: {text}\n{message}"
    return found


def descriptors() -> list[str]:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    made = RandomMiniscripts(random.Random(seed))
    return [made.text() for _ in range(effort(30, 200, 5_000))]


@pytest.mark.kyoto
def test_random_descriptors_are_judged_as_by_bdk() -> None:
    differences: Counter[str] = Counter()
    for text in descriptors():
        if text.startswith(BARE):  # BDK's wallets abort at a script without address
            continue
        (mine, message), (theirs, _) = own(text), by_bdk(text)
        if mine is None and theirs is not None:
            differences[explain(BDK_ACCEPTS, text, message, "BDK")] += 1
        elif mine is not None and theirs is None:
            differences[explain(BDK_REFUSES, text, message, "BDK")] += 1
        else:
            assert mine == theirs, text
    print(differences)


@pytest.mark.embit
def test_random_descriptors_have_the_scripts_of_embit() -> None:
    differences: Counter[str] = Counter()
    for text in descriptors():
        (mine, _), (theirs, error) = own(text), by_embit(text)
        if mine is not None and theirs is None:
            differences[explain(EMBIT_REFUSES, text, error, "embit")] += 1
        elif mine is not None:
            assert mine == theirs, text
    print(differences)
