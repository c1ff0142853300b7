"""The addresses of a column of scripts. This is the readable reference."""

from __future__ import annotations

import struct
from itertools import pairwise

from spvfilter.errors import ParameterError
from spvfilter.kernel.blocktables import Layout
from spvfilter.kernel.pure.address import address_of, check_network
from spvfilter.kernel.pure.arguments import snapshot
from spvfilter.kernel.pure.tables import ColumnRows


def script_addresses(
    offsets: bytes, scripts: bytes, p2pkh_version: int, p2sh_version: int, hrp: str, /
) -> tuple[int, bytes | None, bytes | None, bytes]:
    """Return the addresses of a column of scripts as a column of text. A script without an address is null.

    A column is (number of rows, validity, offsets, data), as in Arrow's columnar format.

    Args:
        offsets: Offsets of the scripts as int32, one more than there are rows.
        scripts: The concatenated scripts.
        p2pkh_version: Version byte of the network's P2PKH addresses.
        p2sh_version: Version byte of the network's P2SH addresses.
        hrp: Human-readable part of the network's bech32 addresses.

    Raises:
        ParameterError: The offsets do not match the scripts, a version is out of range, or an address cannot be
            encoded.
        OverflowError: The column has more than 2,147,483,647 bytes.
    """
    taken, data = snapshot(offsets), snapshot(scripts)
    check_network(p2pkh_version, p2sh_version, hrp)
    at = struct.unpack(f"<{len(taken) // 4}i", taken[: len(taken) // 4 * 4])
    ascending = all(one <= other for one, other in pairwise(at))
    if len(taken) % 4 or not at or at[0] < 0 or at[-1] > len(data) or not ascending:
        raise ParameterError(f"the offsets ({len(taken)} bytes) do not match the scripts ({len(data)} bytes)")
    found = ColumnRows("", "", Layout.TEXT)
    for start, end in pairwise(at):
        found.add(address_of(data[start:end], p2pkh_version, p2sh_version, hrp))
    made = found.packed()
    return made.length, made.validity, made.offsets, made.data
