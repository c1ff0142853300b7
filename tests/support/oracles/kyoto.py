"""BDK's client of compact filters (Kyoto) with its own wallet, as a judge of this client."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

WORDS = "abandon " * 11 + "about"  # of BIP-39's test vectors
# its public account key m/84'/1'/0'
ACCOUNT = (
    "tpubDC8msFGeGuwnKG9Upg7DM2b4DaRqg3CUZa5g8v2SRQ6K4NSkxUgd7HsL2XVWbVm39yBA4LAxysQAm397zwQSQoQgewGiYZqrA9DsP4zbQ1M"
)
LOOKAHEAD = 25  # scripts of each keychain that BDK watches

Coin = tuple[bytes, int, int]  # txid (wire order), index, value in satoshi


class Kyoto:
    """A wallet of two keychains, receiving and change, synchronized from one local node."""

    def __init__(self, folder: Path, port: int, *, is_encrypted: bool = False) -> None:
        import bdkpython as bdk

        self._bdk: Any = bdk
        receiving, change = (bdk.Descriptor(f"wpkh({ACCOUNT}/{chain}/*)", bdk.NetworkKind.TEST) for chain in (0, 1))
        self._rows = bdk.Persister.new_sqlite(str(folder / "bdk.sqlite"))
        self.wallet = bdk.Wallet(receiving, change, bdk.Network.REGTEST, self._rows, LOOKAHEAD)
        peer = bdk.Peer(address=bdk.IpAddress.from_ipv4(127, 0, 0, 1), port=port, v2_transport=is_encrypted)
        builder = bdk.CbfBuilder().connections(1).peers([peer]).data_dir(str(folder)).scan_type(bdk.ScanType.SYNC())
        self._parts = builder.build(self.wallet)

    async def __aenter__(self) -> Self:
        self._parts.node.run()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._parts.client.shutdown()

    def scripts(self) -> list[bytes]:
        """The scriptPubKeys that it watches from the start."""
        kinds = self._bdk.KeychainKind.EXTERNAL, self._bdk.KeychainKind.INTERNAL
        infos = [self.wallet.peek_address(kind, index) for kind in kinds for index in range(LOOKAHEAD)]
        return [bytes(info.address.script_pubkey().to_bytes()) for info in infos]

    def secrets(self, count: int) -> list[bytes]:
        """The private keys of the first `count` scripts of each keychain."""
        words = self._bdk.Mnemonic.from_string(WORDS)
        account = self._bdk.DescriptorSecretKey(self._bdk.NetworkKind.TEST, words, None)
        paths = [f"m/84h/1h/0h/{chain}/{index}" for chain in (0, 1) for index in range(count)]
        return [bytes(account.derive(self._bdk.DerivationPath(path)).secret_bytes()) for path in paths]

    async def update(self) -> int:
        """Wait for the next change of the chain and apply it. Returns the height of the tip."""
        self.wallet.apply_update(await self._parts.client.update())
        self.wallet.persist(self._rows)
        return int(self.wallet.latest_checkpoint().height)

    async def until(self, block_hash: bytes) -> None:
        """Wait until a block is its tip (hash in wire order)."""
        while bytes(self.wallet.latest_checkpoint().hash.serialize()) != block_hash:
            await self.update()

    def confirmed(self) -> set[Coin]:
        """The confirmed coins that no confirmed transaction has spent."""
        spent = {
            (bytes(each.previous_output.txid.serialize()), each.previous_output.vout)
            for tx in self.wallet.transactions()
            if tx.chain_position.is_CONFIRMED()
            for each in tx.transaction.input()
        }
        made = [
            (bytes(coin.outpoint.txid.serialize()), coin.outpoint.vout, coin.txout.value.to_sat())
            for coin in self.wallet.list_output()
            if coin.chain_position.is_CONFIRMED()
        ]
        return {(txid, index, value) for txid, index, value in made if (txid, index) not in spent}

    def balance(self) -> int:
        """BDK's confirmed balance in satoshi, without coins that an unconfirmed transaction spends."""
        return int(self.wallet.balance().confirmed.to_sat())
