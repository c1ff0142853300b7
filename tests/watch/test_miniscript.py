"""Miniscript: Core's published vectors, the rules of BIP-379, and the limits of resources."""

from __future__ import annotations

from itertools import count

import pytest

from spvfilter.errors import DescriptorError
from spvfilter.network import MAINNET
from spvfilter.watch.descriptor import parse_descriptor
from spvfilter.watch.descriptor.expression import parse_expression
from spvfilter.watch.descriptor.keyexpression import Reading
from spvfilter.watch.descriptor.miniscript import MiniscriptNode, flattened, read_node
from spvfilter.watch.descriptor.template import assemble, size_of
from support.wallets.descriptortexts import NUMS, XPUB

pytestmark = pytest.mark.descriptors


# Core, src/test/miniscript_tests.cpp: the expression, its script in wsh(), and its script in a leaf of tr(). Then its
# properties: m (not malleable), s (needs a signature), k (timelocks are not mixed). Then operations, witness items and
# stack size.
CORE = [
    (
        (
            "or_d(sha256(38df1c1f64a24a77b23393bca50dff872e31edc4f3b5aa3b90ad0b82f4f089b6),and_n(un:after(499999999),"
            "older(4194305)))"
        ),
        (
            "82012088a82038df1c1f64a24a77b23393bca50dff872e31edc4f3b5aa3b90ad0b82f4f089b68773646304ff64cd1db192670068"
            "64006703010040b26868"
        ),
        (
            "82012088a82038df1c1f64a24a77b23393bca50dff872e31edc4f3b5aa3b90ad0b82f4f089b68773646304ff64cd1db192670068"
            "64006703010040b26868"
        ),
        "k",
        (16, 1, 3),
    ),
    (
        (
            "j:and_b(multi(2,0279be667ef9dcbbac55a06295ce870b07029bfcdb2dce28d959f2815b16f81798,024ce119c96e2fa357200"
            "b559b2f7dd5a5f02d5290aff74b03f3e471b273211c97),s:or_i(older(1),older(4252898)))"
        ),
        (
            "82926352210279be667ef9dcbbac55a06295ce870b07029bfcdb2dce28d959f2815b16f8179821024ce119c96e2fa357200b559b"
            "2f7dd5a5f02d5290aff74b03f3e471b273211c9752ae7c6351b26703e2e440b2689a68"
        ),
        "",
        "sk",
        (14, 4, 8),
    ),
    (
        (
            "and_b(hash256(32ba476771d01e37807990ead8719f08af494723de1d228f2c2c07cc0aa40bac),a:and_b(hash256(13177255"
            "2c01444cd81360818376a040b7c3b2b7b0a53550ee3edde216cec61b),a:older(1)))"
        ),
        (
            "82012088aa2032ba476771d01e37807990ead8719f08af494723de1d228f2c2c07cc0aa40bac876b82012088aa20131772552c01"
            "444cd81360818376a040b7c3b2b7b0a53550ee3edde216cec61b876b51b26c9a6c9a"
        ),
        (
            "82012088aa2032ba476771d01e37807990ead8719f08af494723de1d228f2c2c07cc0aa40bac876b82012088aa20131772552c01"
            "444cd81360818376a040b7c3b2b7b0a53550ee3edde216cec61b876b51b26c9a6c9a"
        ),
        "mk",
        (15, 2, 4),
    ),
    (
        (
            "thresh(2,multi(2,03a0434d9e47f3c86235477c7b1ae6ae5d3442d49b1943c2b752a68e2a47e247c7,036d2b085e9e382ed10b"
            "69fc311a03f8641ccfff21574de0927513a49d9a688a00),a:multi(1,036d2b085e9e382ed10b69fc311a03f8641ccfff21574d"
            "e0927513a49d9a688a00),ac:pk_k(022f01e5e15cca351daff3843fb70f3c2f0a1bdd05e5af888a67784ef3e10a2a01))"
        ),
        (
            "522103a0434d9e47f3c86235477c7b1ae6ae5d3442d49b1943c2b752a68e2a47e247c721036d2b085e9e382ed10b69fc311a03f8"
            "641ccfff21574de0927513a49d9a688a0052ae6b5121036d2b085e9e382ed10b69fc311a03f8641ccfff21574de0927513a49d9a"
            "688a0051ae6c936b21022f01e5e15cca351daff3843fb70f3c2f0a1bdd05e5af888a67784ef3e10a2a01ac6c935287"
        ),
        "",
        "msk",
        (13, 6, 10),
    ),
    (
        (
            "or_d(nd:and_v(v:older(4252898),v:older(4252898)),sha256(38df1c1f64a24a77b23393bca50dff872e31edc4f3b5aa3b"
            "90ad0b82f4f089b6))"
        ),
        (
            "766303e2e440b26903e2e440b2696892736482012088a82038df1c1f64a24a77b23393bca50dff872e31edc4f3b5aa3b90ad0b82"
            "f4f089b68768"
        ),
        (
            "766303e2e440b26903e2e440b2696892736482012088a82038df1c1f64a24a77b23393bca50dff872e31edc4f3b5aa3b90ad0b82"
            "f4f089b68768"
        ),
        "k",
        (15, 2, 3),
    ),
    (
        (
            "c:and_v(or_c(multi(2,036d2b085e9e382ed10b69fc311a03f8641ccfff21574de0927513a49d9a688a00,02352bbf4a4cdd12"
            "564f93fa332ce333301d9ad40271f8107181340aef25be59d5),v:ripemd160(1b0f3c404d12075c68c938f9f60ebea4f74941a0"
            ")),pk_k(03fff97bd5755eeea420453a14355235d382f6472f8568a18b2f057a1460297556))"
        ),
        (
            "5221036d2b085e9e382ed10b69fc311a03f8641ccfff21574de0927513a49d9a688a002102352bbf4a4cdd12564f93fa332ce333"
            "301d9ad40271f8107181340aef25be59d552ae6482012088a6141b0f3c404d12075c68c938f9f60ebea4f74941a088682103fff9"
            "7bd5755eeea420453a14355235d382f6472f8568a18b2f057a1460297556ac"
        ),
        "",
        "msk",
        (10, 5, 9),
    ),
    (
        (
            "andor(hash256(5f8d30e655a7ba0d7596bb3ddfb1d2d20390d23b1845000e1e118b3be1b3f040),j:and_v(v:hash160(3a2bff"
            "0da9d96868e66abc4427bea4691cf61ccd),older(4194305)),ripemd160(44d90e2d3714c8663b632fcf0f9d5f22192cc4c8))"
        ),
        (
            "82012088aa205f8d30e655a7ba0d7596bb3ddfb1d2d20390d23b1845000e1e118b3be1b3f040876482012088a61444d90e2d3714"
            "c8663b632fcf0f9d5f22192cc4c8876782926382012088a9143a2bff0da9d96868e66abc4427bea4691cf61ccd8803010040b268"
            "68"
        ),
        (
            "82012088aa205f8d30e655a7ba0d7596bb3ddfb1d2d20390d23b1845000e1e118b3be1b3f040876482012088a61444d90e2d3714"
            "c8663b632fcf0f9d5f22192cc4c8876782926382012088a9143a2bff0da9d96868e66abc4427bea4691cf61ccd8803010040b268"
            "68"
        ),
        "k",
        (20, 2, 4),
    ),
    (
        (
            "or_i(c:and_v(v:after(500000),pk_k(02c6047f9441ed7d6d3045406e95c07cd85c778e4b8cef3ca7abac09b95c709ee5)),s"
            "ha256(d9147961436944f43cd99d28b2bbddbf452ef872b30c8279e255e7daafc7f946))"
        ),
        (
            "630320a107b1692102c6047f9441ed7d6d3045406e95c07cd85c778e4b8cef3ca7abac09b95c709ee5ac6782012088a820d91479"
            "61436944f43cd99d28b2bbddbf452ef872b30c8279e255e7daafc7f9468768"
        ),
        (
            "630320a107b16920c6047f9441ed7d6d3045406e95c07cd85c778e4b8cef3ca7abac09b95c709ee5ac6782012088a820d9147961"
            "436944f43cd99d28b2bbddbf452ef872b30c8279e255e7daafc7f9468768"
        ),
        "mk",
        (10, 2, 3),
    ),
    (
        (
            "thresh(2,c:pk_h(025cbdf0646e5db4eaa398f365f2ea7a0e3d419b7e0330e39ce92bddedcac4f9bc),s:sha256(e38990d0c7f"
            "c009880a9c07c23842e886c6bbdc964ce6bdd5817ad357335ee6f),a:hash160(dd69735817e0e3f6f826a9238dc2e291184f013"
            "1))"
        ),
        (
            "76a9145dedfbf9ea599dd4e3ca6a80b333c472fd0b3f6988ac7c82012088a820e38990d0c7fc009880a9c07c23842e886c6bbdc9"
            "64ce6bdd5817ad357335ee6f87936b82012088a914dd69735817e0e3f6f826a9238dc2e291184f0131876c935287"
        ),
        (
            "76a9141a7ac36cfa8431ab2395d701b0050045ae4a37d188ac7c82012088a820e38990d0c7fc009880a9c07c23842e886c6bbdc9"
            "64ce6bdd5817ad357335ee6f87936b82012088a914dd69735817e0e3f6f826a9238dc2e291184f0131876c935287"
        ),
        "k",
        (18, 4, 6),
    ),
    (
        (
            "and_n(c:pk_k(03daed4f2be3a8bf278e70132fb0beb7522f570e144bf615c07e996d443dee8729),and_b(l:older(4252898),"
            "a:older(16)))"
        ),
        "2103daed4f2be3a8bf278e70132fb0beb7522f570e144bf615c07e996d443dee8729ac64006763006703e2e440b2686b60b26c9a68",
        "20daed4f2be3a8bf278e70132fb0beb7522f570e144bf615c07e996d443dee8729ac64006763006703e2e440b2686b60b26c9a68",
        "ms",
        (12, 2, 3),
    ),
    (
        (
            "or_d(c:pk_h(02e493dbf1c10d80f3581e4904930b1404cc6c13900ee0758474fa94abe8c4cd13),andor(c:pk_k(024ce119c96"
            "e2fa357200b559b2f7dd5a5f02d5290aff74b03f3e471b273211c97),older(2016),after(1567547623)))"
        ),
        (
            "76a914c42e7ef92fdb603af844d064faad95db9bcdfd3d88ac736421024ce119c96e2fa357200b559b2f7dd5a5f02d5290aff74b"
            "03f3e471b273211c97ac6404e7e06e5db16702e007b26868"
        ),
        (
            "76a91421ab1a140d0d305b8ff62bdb887d9fef82c9899e88ac7364204ce119c96e2fa357200b559b2f7dd5a5f02d5290aff74b03"
            "f3e471b273211c97ac6404e7e06e5db16702e007b26868"
        ),
        "mk",
        (13, 3, 5),
    ),
    (
        (
            "thresh(2,c:pk_k(03d30199d74fb5a22d47b6e054e2f378cedacffcb89904a61d75d0dbd407143e65),ac:pk_k(03fff97bd575"
            "5eeea420453a14355235d382f6472f8568a18b2f057a1460297556),altv:after(1000000000),altv:after(100))"
        ),
        (
            "2103d30199d74fb5a22d47b6e054e2f378cedacffcb89904a61d75d0dbd407143e65ac6b2103fff97bd5755eeea420453a143552"
            "35d382f6472f8568a18b2f057a1460297556ac6c936b6300670400ca9a3bb16951686c936b6300670164b16951686c935287"
        ),
        (
            "20d30199d74fb5a22d47b6e054e2f378cedacffcb89904a61d75d0dbd407143e65ac6b20fff97bd5755eeea420453a14355235d3"
            "82f6472f8568a18b2f057a1460297556ac6c936b6300670400ca9a3bb16951686c936b6300670164b16951686c935287"
        ),
        "m",
        (22, 4, 5),
    ),
]


def node_of(text: str, *, is_tapscript: bool) -> MiniscriptNode:
    """The node of an expression, even if it violates rules."""
    reading = Reading(MAINNET, lambda error: None)
    return read_node(parse_expression(text), reading, is_tapscript=is_tapscript)


@pytest.mark.parametrize("case", CORE, ids=[case[0][:40] for case in CORE])
def test_scripts_types_and_costs_are_those_of_core(case: tuple[str, str, str, str, tuple[int, int, int]]) -> None:
    text, segwit, tapscript, properties, (ops, items, stack) = case
    node = node_of(text, is_tapscript=False)
    assert assemble(flattened(node.script), 0)([0])[0].hex() == segwit
    assert size_of(flattened(node.script)) * 2 == len(segwit)
    assert "".join(letter for letter in "msk" if letter in node.type) == properties
    assert node.sat is not None
    assert (node.ops + node.sat.keys, node.sat.removed + 1, node.sat.peak + 1) == (ops, items, stack)
    if tapscript:
        assert assemble(flattened(node_of(text, is_tapscript=True).script), 0)([0])[0].hex() == tapscript


TYPES = [  # BIP-379 § Type System: an expression with A, B, … for keys, and all letters of its type
    ("0", "Bzudems"),
    ("1", "Bzufm"),
    ("pk_k(A)", "Konudems"),
    ("pk_h(A)", "Knudems"),
    ("pk(A)", "Bonudems"),
    ("pkh(A)", "Bnudems"),
    ("older(1)", "Bzfm"),
    ("after(1)", "Bzfm"),
    ("hash160(4355a46b19d348dc2f57c046f8ef63d4538ebb93)", "Bonudm"),
    ("multi(2,A,B)", "Bnudems"),
    ("a:pk(A)", "Wudems"),
    ("s:pk(A)", "Wudems"),
    ("v:pk(A)", "Vonfms"),
    ("dv:older(1)", "Bondem"),
    ("j:pkh(A)", "Bnudms"),
    ("n:pk(A)", "Bonudems"),
    ("tv:pk(A)", "Bonufms"),
    ("l:pk(A)", "Budms"),
    ("u:pk(A)", "Budms"),
    ("and_v(v:pk(A),pk(B))", "Bnufms"),
    ("and_b(pk(A),s:pk(B))", "Bnudems"),
    ("and_n(pk(A),pk(B))", "Budems"),
    ("andor(pk(A),older(1),pk(B))", "Bdems"),
    ("or_b(pk(A),s:pk(B))", "Budems"),
    ("or_c(pk(A),v:pk(B))", "Vfms"),
    ("or_d(pk(A),pk(B))", "Budems"),
    ("or_i(pk(A),pk(B))", "Budms"),
    ("thresh(1,pk(A),s:pk(B))", "Budems"),
    ("thresh(2,pk(A),s:hash160(4355a46b19d348dc2f57c046f8ef63d4538ebb93))", "Buds"),
]


@pytest.mark.parametrize(("text", "letters"), TYPES, ids=[text[:40] for text, _ in TYPES])
def test_types_are_those_of_bip_379(text: str, letters: str) -> None:
    numbers = count()
    for name in "AB":
        text = text.replace(f"({name}", f"({XPUB}/{next(numbers)}").replace(f",{name}", f",{XPUB}/{next(numbers)}")
    node = node_of(text, is_tapscript=False)
    assert sorted(set(node.type) - set("xghijk")) == sorted(letters)


# The rules for whole scripts


def keys(number: int) -> list[str]:
    return [f"{XPUB}/{index}/*" for index in range(number)]


def refusal(text: str) -> str:
    with pytest.raises(DescriptorError) as caught:
        parse_descriptor(text, MAINNET)
    return str(caught.value)


A, B, C = keys(3)
HASH = "hash160(4355a46b19d348dc2f57c046f8ef63d4538ebb93)"
RULES = [  # a script that is valid in wsh() and in a leaf of tr(), but for a rule
    (f"pk_k({A})", "needs a script of type B, found Kondu: anybody could spend"),
    (f"v:pk({A})", "needs a script of type B, found Von: nobody could spend"),
    (f"s:pk({A})", "needs a script of type B, found Wdu: it is incomplete"),
    (f"and_v(v:pk({A}),pk_k({B}))", "needs a script of type B, found Kn"),
    (f"and_v(pk({A}),pk({B}))", "and_v() needs a script of type V, found Bondu: write v: before it"),
    (f"and_v(pk_k({A}),pk({B}))", "and_v() needs a script of type V, found Kondu"),
    (f"and_b(pk({A}),pk({B}))", "and_b() needs a script of type W, found Bondu: write a: or s: before it"),
    (f"or_d(v:pk({A}),pk({B}))", "or_d() needs a script of type Bdu, found Von"),
    (f"or_i(pk({A}),v:pk({B}))", "or_i() needs two scripts of the same type, found Bondu and Von"),
    (f"c:pk({A})", "c: needs a script of type K, found Bondu"),
    (f"thresh(1,pk({A}),pk({B}))", "thresh() needs a script of type Wdu, found Bondu"),
    (f"or_d(pk({A}),{HASH})", "can be spent without a signature"),
    ("older(144)", "can be spent without a signature"),
    (f"and_b(older(1),a:and_b(pk({A}),a:older(4194305)))", "mixes timelocks in blocks and in time"),
    (f"and_v(v:pk({A}),and_v(v:after(100),after(500000000)))", "and_v() mixes timelocks"),
    (f"and_v(v:pk({A}),or_b({HASH},s:pk({B})))", "or_b() makes the script malleable"),
    (f"and_v(v:pk({A}),or_d({HASH},pk({B})))", "or_d() makes the script malleable"),
    (f"or_d(pk({A}),and_v(v:pk({A}),older(1)))", "this key occurs twice in one script"),
    ("0", "nobody can ever spend"),
    (f"and_v(v:pk({A}),0)", "nobody can ever spend"),
]


@pytest.mark.parametrize(("script", "cause"), RULES, ids=[cause[:40] for _, cause in RULES])
def test_broken_rule_is_refused_at_its_place(script: str, cause: str) -> None:
    for text in (f"wsh({script})", f"sh(wsh({script}))", f"tr({NUMS},{script})", f"tr({NUMS},{{pk({C}),{script}}})"):
        message = refusal(text)
        assert cause in message
        place = int(message.removeprefix("character ").partition(":")[0])
        assert text.rindex(script) < place <= text.rindex(script) + len(script)


def test_timelocks_may_be_mixed_on_different_paths() -> None:
    either = f"or_i(and_v(v:pk({A}),older(1)),and_v(v:pk({B}),older(4194305)))"
    both_kinds = f"and_v(v:pk({A}),and_v(v:after(100),older(4194305)))"
    for script in (either, both_kinds):
        assert parse_descriptor(f"wsh({script})", MAINNET)
        assert parse_descriptor(f"tr({NUMS},{script})", MAINNET)


def test_keys_may_repeat_across_leaves_and_in_a_multisig() -> None:
    # as in Core, whose check of duplicate keys is for one miniscript
    for text in (
        f"tr({A},{{pk({A}),pk({A})}})",
        f"wsh(multi(2,{A},{A}))",
        f"wsh(sortedmulti(2,{A},{A}))",
        f"tr({NUMS},multi_a(2,{A},{A}))",
    ):
        assert parse_descriptor(text, MAINNET)
    assert "twice" in refusal(f"wsh(and_v(v:pk({C}),multi(2,{A},{A})))")
    assert "twice" in refusal(f"wsh(or_d(pk({XPUB}/<0;1>/*),and_v(v:pk({XPUB}/<2;1>/*),older(1))))")


def chain(scripts: list[str]) -> str:
    """The scripts joined by and_v()."""
    text = scripts[-1]
    for script in reversed(scripts[:-1]):
        text = f"and_v(v:{script},{text})"
    return text


def limit(number: int, kind: str) -> str:
    """A script with a size or a cost that grows with a number."""
    pks = [f"pk({key})" for key in keys(number)]
    match kind:
        case "bytes":
            return f"wsh(or_i({chain(pks[: number // 2])},{chain(pks[number // 2 :])}))"
        case "items":
            return f"wsh({chain(pks)})"
        case "operations":
            return f"wsh({chain([HASH] * number + pks[:1])})"
        case _:
            return f"tr({NUMS},{chain(pks)})"


@pytest.mark.parametrize(
    ("kind", "most", "cause"),
    [
        ("bytes", 102, "the script in wsh() is 3,608 bytes long, but nodes relay at most 3,600"),
        ("items", 100, "needs 101 witness items, but nodes relay at most 100"),
        ("operations", 50, "executes 205 operations, but at most 201 are allowed"),
    ],
)
def test_limits_of_resources_are_those_of_core(kind: str, most: int, cause: str) -> None:
    assert parse_descriptor(limit(most, kind), MAINNET)
    assert cause in refusal(limit(most + 1, kind))


@pytest.mark.slow
def test_the_stack_of_a_tapscript_has_at_most_1000_items() -> None:
    def text(number: int) -> str:
        first, second = keys(number)[:500], keys(number)[500:]
        return f"tr({NUMS},and_v(v:multi_a(1,{','.join(first)}),multi_a(1,{','.join(second)})))"

    assert parse_descriptor(text(999), MAINNET)
    assert "needs more than 1000 items on the stack" in refusal(text(1_001))


def test_brackets_are_nested_at_most_402_deep() -> None:
    def text(number: int) -> str:
        return f"tr({NUMS},{'and_v(v:1,' * number}pk({A}){')' * number})"

    assert parse_descriptor(text(400), MAINNET)
    assert "more than 402 deep" in refusal(text(401))


def test_thresh_has_at_most_1000_scripts() -> None:
    assert "thresh() takes at most 1000 scripts, not 1001" in refusal(f"tr({NUMS},thresh(1{',0' * 1_001}))")
