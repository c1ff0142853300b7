"""The message envelope against published messages, and its limits."""

from __future__ import annotations

from typing import Any

import pytest

from spvfilter.errors import ParameterError
from spvfilter.network import MAINNET, Network
from spvfilter.wire.codec import MAX_PAYLOAD_SIZE, encode_message
from support import vector_cases


@vector_cases("10_p2p/messages.json")
def test_published_messages_are_made_again(case: Any) -> None:
    network = Network.named(case["network"])
    assert encode_message(network.magic, case["command"], bytes.fromhex(case["payload"])).hex() == case["message"]


def test_a_message_without_payload_is_its_envelope() -> None:
    assert encode_message(MAINNET.magic, "verack", b"").hex() == "f9beb4d976657261636b000000000000000000005df6e0e2"


def test_the_largest_payload_is_taken_and_one_byte_more_is_refused() -> None:
    assert encode_message(MAINNET.magic, "block", bytes(MAX_PAYLOAD_SIZE))[16:20] == MAX_PAYLOAD_SIZE.to_bytes(4, "little")
    with pytest.raises(ParameterError, match="at most 4000000 bytes, not 4000001"):
        encode_message(MAINNET.magic, "block", bytes(MAX_PAYLOAD_SIZE + 1))


@pytest.mark.parametrize("command", ["", "thirteenchars", "fi\0ter", "filtér", "line\n"])
def test_a_bad_command_is_refused(command: str) -> None:
    with pytest.raises(ParameterError, match="a command is 1 to 12 printable ASCII"):
        encode_message(MAINNET.magic, command, b"")


def test_a_command_of_twelve_characters_fills_its_field() -> None:
    assert encode_message(MAINNET.magic, "twelve_chars", b"")[4:16] == b"twelve_chars"


@pytest.mark.parametrize("magic", [b"", b"\xf9\xbe\xb4", b"\xf9\xbe\xb4\xd9\x00"])
def test_a_magic_of_another_size_is_refused(magic: bytes) -> None:
    with pytest.raises(ParameterError, match="magic has 4 bytes"):
        encode_message(magic, "verack", b"")
