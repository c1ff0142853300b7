// Drives @mempool/electrum-client: node driver.js PORT SCRIPTHASH OTHER TXID. Prints the answers as one JSON object.
'use strict';

const ElectrumClient = require('@mempool/electrum-client');

async function main(port, scriptHash, other, txid) {
  const client = new ElectrumClient(port, '127.0.0.1', 'tcp', null, { onLog: () => {} });
  await client.initElectrum({ client: 'test', version: '1.4' }, { retryPeriod: 1000, maxRetry: 0, callback: null });
  const told = new Promise((resolve) => client.subscribe.on('blockchain.headers.subscribe', resolve));
  const found = { version: client.versionInfo };
  found.tip = await client.blockchainHeaders_subscribe();
  found.history = await client.blockchainScripthash_getHistory(scriptHash);
  found.balances = await client.blockchainScripthash_getBalanceBatch([scriptHash, other]);
  found.unspent = await client.blockchainScripthash_listunspent(scriptHash);
  found.txs = await client.blockchainTransaction_getBatch([txid], true);
  found.merkle = await client.blockchainTransaction_getMerkle(txid, found.history[0].height);
  found.fee = await client.blockchainEstimatefee(6);
  found.refused = await client.blockchainTransaction_get('ab'.repeat(32)).catch((error) => String(error.message));
  process.stdout.write(JSON.stringify(found) + '\n');
  const [header] = await told;
  process.stdout.write(JSON.stringify(header) + '\n');
  client.close();
}

const [port, scriptHash, other, txid] = process.argv.slice(2);
main(Number(port), scriptHash, other, txid).catch((error) => {
  console.error(error);
  process.exit(1);
});
