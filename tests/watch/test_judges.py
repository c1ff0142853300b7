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
from support.blocks.miniscripts import HEX, HEX_Y, RandomMiniscripts
from support.vectors import effort

pytestmark = pytest.mark.descriptors

INDEX = 3
BARE = ("pk(", "multi(", "sortedmulti(")

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


# A difference has a name, a rule that explains it (the function gets the descriptor and this package's message) and an
# example on which the judge still decides that way. Without it, a reworded message would rarely be noticed.
Rule = Callable[[str, str], bool]
Difference = tuple[str, Rule, str]

XPUB = (
    "xpub661MyMwAqRbcFXa83p6tC7fxfCA5BLCzgy3Ct6E22mCzyYwSKt7WE8JQV4XPALPmighzKdY3mHehpAydobVoTjCZkCLsBnUFJm2oUbxMJpM/*"
)
OTHER = XPUB.replace("/*", "/1/*")
COMPRESSED = "03f9308a019258c31049344f85f89d5229b531c845836f99b08601f113bce036f9"
UNCOMPRESSED = f"04{HEX}{HEX_Y}"


def says(part: str) -> Rule:
    return lambda text, message: part in message


def finds(pattern: str) -> Rule:
    return lambda text, message: bool(re.search(pattern, text))


CONSTANT = r"[(,{:][01](?=[,)}])"
"""The fragment 0 or 1, or a number that looks like one."""

BDK_ACCEPTS: list[Difference] = [
    ("BIP-379, Core's IsNotSatisfiable: nobody can spend", says("nobody can ever spend"), f"tr({XPUB},0)"),
    (
        "BIP-379: timelocks below 2^31",
        says("expected a number from 1 to 2147483647"),
        f"wsh(and_v(v:pk({XPUB}),after(2147483648)))",
    ),
    ("BIP-389: no number twice in a multipath", says("a number twice"), f"wpkh({XPUB.replace('/*', '/<0;0>/*')})"),
    (
        "BIP-382 and 386: no uncompressed keys in wsh() and tr()",
        says("an uncompressed key is not allowed"),
        f"tr({XPUB},pkh({UNCOMPRESSED}))",
    ),
    ("BIP-386: x-only keys only in tr()", says("an x-only key of 64 hex digits"), f"wsh(pkh({HEX}))"),
]
BDK_REFUSES: list[Difference] = [
    (
        "BIP-383 and 387: a multisig alone may repeat a key",
        lambda text, message: "multi" in text and has_repeated_key(text),
        f"sh(wsh(multi(1,{XPUB},{XPUB})))",
    ),
    (
        "BIP-379: d: has property u in tapscript",
        finds(r"^tr\(.*[{(,][a-z]*d[a-z]*:"),
        f"tr({XPUB},or_d(dv:0,pkh({OTHER})))",
    ),
    (
        "BIP-379: thresh() may contain 0",
        lambda text, message: "thresh(" in text and bool(re.search(CONSTANT, text)),
        f"wsh(thresh(1,pk({XPUB}),a:0))",
    ),
]
BDK_DERIVES_OTHERWISE: list[Difference] = [
    (
        "BIP-383, Core: sortedmulti() sorts keys as they are written, an uncompressed one after the others",
        finds(r"sortedmulti\(.*\b04[0-9a-f]{128}"),
        f"sh(sortedmulti(1,{UNCOMPRESSED},{COMPRESSED}))",
    ),
]
EMBIT_REFUSES: list[Difference] = [
    ("BIP-379: the fragments 0 and 1", finds(CONSTANT), f"wsh(or_d(pk({XPUB}),0))"),
    ("BIP-381 and 383: pk() and multi() alone", lambda text, message: text.startswith(BARE), f"pk({XPUB})"),
]


def has_repeated_key(text: str) -> bool:
    keys = re.findall(r"[xt]pub[0-9A-Za-z/]+", text)
    return len(set(keys)) < len(keys)


def explain(differences: list[Difference], text: str, message: str, judge: str) -> str:
    """The name of a difference. Fails if it has none."""
    found = next((name for name, rule, _ in differences if rule(text, message)), None)
    assert found is not None, f"{judge} decides otherwise: {text}\n{message}"
    return found


def difference(text: str, mine: Answer, theirs: Answer) -> str | None:
    """The name of the difference between this package and BDK, or None."""
    (script, message), (their_script, _) = mine, theirs
    if script == their_script:
        return None
    if script is None:
        return explain(BDK_ACCEPTS, text, message, "BDK")
    return explain(BDK_REFUSES if their_script is None else BDK_DERIVES_OTHERWISE, text, message, "BDK")


def examples(*differences: Difference) -> list[Any]:
    return [pytest.param(name, text, id=name) for name, _, text in differences]


def descriptors() -> list[str]:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    made = RandomMiniscripts(random.Random(seed))
    return [made.text() for _ in range(effort(30, 200, 5_000))]


@pytest.mark.kyoto
@pytest.mark.parametrize("name, text", examples(*BDK_ACCEPTS, *BDK_REFUSES, *BDK_DERIVES_OTHERWISE))
def test_every_difference_from_bdk_has_an_example(name: str, text: str) -> None:
    assert difference(text, own(text), by_bdk(text)) == name


@pytest.mark.embit
@pytest.mark.parametrize("name, text", examples(*EMBIT_REFUSES))
def test_every_difference_from_embit_has_an_example(name: str, text: str) -> None:
    (mine, _), (theirs, error) = own(text), by_embit(text)
    assert mine is not None and theirs is None
    assert explain(EMBIT_REFUSES, text, error, "embit") == name


@pytest.mark.kyoto
def test_random_descriptors_are_judged_as_by_bdk() -> None:
    differences: Counter[str | None] = Counter()
    for text in descriptors():
        if text.startswith(BARE):  # BDK's wallets abort at a script without address
            continue
        differences[difference(text, own(text), by_bdk(text))] += 1
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
