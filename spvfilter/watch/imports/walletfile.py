"""WalletFile: the contents of a file that a wallet exported, except private keys."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from spvfilter._public import public
from spvfilter.errors import ParameterError, WrongNetworkError, alternatives
from spvfilter.network import MAINNET, NETWORKS, REGTEST, Network
from spvfilter.watch.imports.privatekeys import is_private

TEST_NETWORKS = tuple(each for each in NETWORKS if each is not MAINNET)
"""The networks whose extended keys start with tpub."""
PUBLIC_TEST_NETWORKS = tuple(each for each in TEST_NETWORKS if each is not REGTEST)
"""The networks that wallets call "testnet": testnet3, testnet4 and signet."""
_NAMED_NETWORKS: dict[str, tuple[Network, ...]] = {
    "main": (MAINNET,),
    "mainnet": (MAINNET,),
    "bitcoin": (MAINNET,),
    "test": PUBLIC_TEST_NETWORKS,
    "testnet": PUBLIC_TEST_NETWORKS,
    "testnet3": PUBLIC_TEST_NETWORKS,
    "testnet4": PUBLIC_TEST_NETWORKS,
    "signet": PUBLIC_TEST_NETWORKS,
    "regtest": (REGTEST,),
}
_MAX_CHECKED = 10_000
MAX_NAME = 1_000
"""Largest length of a name or label in characters (our choice). A longer name is shortened."""


@public
class ImportedDescriptor(NamedTuple):
    """A descriptor in a wallet file."""

    text: str
    """The descriptor, with or without a checksum."""
    label: str | None = None
    """Label of its keychains, or None if the file has none."""
    end: int = 0
    """First index that the wallet has not derived, or 0 if the file does not say."""
    first_address: str | None = None
    """Address of index 0 according to the file, or None if the file does not give it."""
    revealed: tuple[int, ...] = ()
    """First index that the wallet has not handed out yet, for each path of the descriptor. Empty if unknown."""


@public
class ImportedAddress(NamedTuple):
    """An address in a wallet file."""

    address: str
    """The address."""
    label: str | None = None
    """Its label, or None if the file has none."""
    line: int = 0
    """Number of the line in the file, from 1, or 0 if the file does not consist of lines."""


@public
@dataclass(frozen=True, slots=True)
class WalletFile:
    """The contents of a file that a wallet exported. It never contains private keys."""

    kind: str
    """Program and format of the file, such as "Electrum"."""
    name: str | None = None
    """Name of the wallet, or None if the file has none."""
    networks: tuple[Network, ...] = NETWORKS
    """Networks that the wallet may belong to: all of them if the file does not name one."""
    birthday: int | None = None
    """Time before which the wallet has no payments (Unix time), or None if the file does not give it."""
    birth_height: int | None = None
    """Height before which the wallet has no payments, or None if the file does not give it."""
    descriptors: tuple[ImportedDescriptor, ...] = ()
    """The descriptors of the wallet."""
    addresses: tuple[ImportedAddress, ...] = ()
    """Addresses to watch."""
    labels: tuple[ImportedAddress, ...] = ()
    """Labels of addresses. They do not add addresses that the descriptors do not derive."""
    warnings: tuple[str, ...] = ()
    """Sentences about parts of the file that were left out, such as private keys."""

    @property
    def sources(self) -> tuple[str, ...]:
        """The descriptors and addresses to watch, as text."""
        return (*(each.text for each in self.descriptors), *(each.address for each in self.addresses))

    def with_warning(self, *texts: str) -> WalletFile:
        """Return the same contents with more warnings."""
        return replace(self, warnings=(*self.warnings, *texts))


def name_in(value: object) -> str | None:
    """Return a JSON value as a name or label, or None if it is not text, is empty, or may be a private key.

    Control characters become spaces.
    """
    if not isinstance(value, str) or is_private(value[:_MAX_CHECKED]):
        return None
    text = "".join(char if char.isprintable() else " " for char in value[: 4 * MAX_NAME])
    return " ".join(text.split())[:MAX_NAME] or None


def label_in(value: object) -> str | None:
    """Return a JSON value as a label, even with line breaks (BIP-329), or None if it isn't text or may be a secret."""
    if not isinstance(value, str) or is_private(value[:_MAX_CHECKED]):
        return None
    text = value[:_MAX_CHECKED].encode("utf-8", "replace").decode()  # replaces surrogates
    return text.replace("\0", " ").strip() or None


def named_networks(name: object, default: tuple[Network, ...], kind: str) -> tuple[Network, ...]:
    """Return the networks that the name in a file stands for, or `default` if the file gives no name.

    Raises ParameterError if the name is unknown. `kind` names the program.
    """
    if name is None:
        return default
    found = _NAMED_NETWORKS.get(name.lower()) if isinstance(name, str) else None
    if found is None:
        raise ParameterError(
            f"this {kind} wallet is for an unknown network: expected mainnet, testnet, signet or regtest in the file"
        )
    return found


def networks_of_text(text: str) -> tuple[Network, ...]:
    """Return the networks that a descriptor with extended keys may belong to, by the prefixes of its keys."""
    if "tpub" in text:
        return TEST_NETWORKS
    return (MAINNET,) if "xpub" in text else NETWORKS


def check_network(wallet: WalletFile, network: Network) -> None:
    """Raise WrongNetworkError unless a wallet may belong to the watch list's network."""
    if not any((each.p2pkh_version, each.hrp) == (network.p2pkh_version, network.hrp) for each in wallet.networks):
        owners = tuple(each.name for each in wallet.networks)
        raise WrongNetworkError(
            f"this wallet ({wallet.kind}) is for {alternatives(owners)}, not for {network}: choose its network", owners
        )
