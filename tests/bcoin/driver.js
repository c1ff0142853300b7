/*
 * A real Bitcoin node for the tests: bcoin on regtest, in memory, on 127.0.0.1, controlled by lines of JSON.
 *
 *   node driver.js full            a full node with BIP-37; "ready" says on which port
 *   node driver.js full KEY        the same with JSON-RPC over HTTP, any user with this password; "ready" says "rpc", its port
 *   node driver.js spv HOST:PORT   an SPV client that knows that one peer
 *
 * Standard input takes {"id", "method", "params"}; standard output gives {"id", "result"} or {"id", "error"}, and {"event", ...}
 * as things happen, the first of them "ready". It ends when standard input does. Methods not in the tables below are bcoin's RPC.
 */

'use strict';

process.env.NODE_BACKEND = 'js';

const path = require('path');
const readline = require('readline');

const modules = path.join(__dirname, 'node_modules');
const load = name => require(path.join(modules, name));

// bdb wants LevelDB, which is compiled; the module that browsers get instead will do, for nothing is stored but in memory
const native = require.resolve(path.join(modules, 'bdb/lib/level'));
require.cache[native] = { id: native, filename: native, loaded: true, exports: load('bdb/lib/level-browser') };

const bcoin = load('bcoin');
const Address = load('bcoin/lib/primitives/address');
const Output = load('bcoin/lib/primitives/output');
const Script = load('bcoin/lib/script/script');
const wallets = load('bcoin/lib/wallet/plugin');
const TX = load('bcoin/lib/primitives/tx');

load('bcoin/lib/net/peer').INV_INTERVAL = 100; // ms; bcoin's 5 s protect the privacy of real wallets
load('bcoin/lib/net/pool').prototype.discoverExternal = async () => {}; // asks the DNS for our address

const [mode, where] = process.argv.slice(2); // where: the peer of an SPV client, or the key of a full node's RPC
const common = { network: 'regtest', memory: true, workers: false, seeds: [], logConsole: false, logFile: false, plugins: [wallets] };

function fullNode() {
  const listening = { listen: true, host: '127.0.0.1', maxInbound: 600, bip37: true };
  const rpc = where ? { httpHost: '127.0.0.1', httpPort: 0, apiKey: where } : {};
  const made = new bcoin.FullNode({ ...common, ...listening, ...rpc, requireStandard: false, rejectAbsurdFees: false, limitFree: false });
  made.pool.options.port = 0; // a free port; the constructor does not accept 0
  return made;
}

function spvNode() {
  return new bcoin.SPVNode({ ...common, only: [where] });
}

const node = mode === 'full' ? fullNode() : spvNode();
const closed = { open: async () => {}, close: async () => {} };
const plugin = node.require('walletdb');
if (mode !== 'full' || !where)
  node.http = closed;
plugin.http = closed;

const say = line => process.stdout.write(`${JSON.stringify(line)}\n`);
const hex = hash => Buffer.from(hash, 'hex').reverse().toString('hex'); // bcoin holds hashes as hex in wire order

/** Waits until the wallet has seen every block, which it takes one by one under a lock. */
async function settled() {
  (await plugin.wdb.txLock.lock())();
}

const methods = {
  /** A fresh address of the wallet: of "default" to a key hash, of "segwit" to a witness key hash. */
  async address({ account = 'default' } = {}) {
    const key = await plugin.wdb.primary.createReceive(account);
    const address = key.getAddress();
    return { address: address.toString(node.network), script: Script.fromAddress(address).toRaw().toString('hex') };
  },

  /** A transaction that pays [script, satoshi] pairs, signed and given to the node. */
  async send({ outputs, account, rate = 10000 }) {
    await settled();
    const paid = outputs.map(([script, value]) => new Output({ script: Script.fromRaw(script, 'hex'), value }));
    const mtx = await plugin.wdb.primary.createTX({ outputs: paid, account, rate, sort: false });
    await plugin.wdb.primary.sign(mtx);
    const tx = mtx.toTX();
    await plugin.wdb.addTX(tx);
    if (mode === 'full')
      await node.sendTX(tx);
    else
      node.relay(tx); // resolves when a peer has taken it
    return { txid: tx.txid(), raw: tx.toRaw().toString('hex') };
  },

  /** What the wallet owns, in satoshi. */
  async balance() {
    await settled();
    const { confirmed, unconfirmed } = await plugin.wdb.primary.getBalance();
    return { confirmed, unconfirmed };
  },

  tip() {
    return { height: node.chain.height, hash: hex(node.chain.tip.hash), synced: node.chain.synced };
  },

  peers() {
    const all = [];
    for (let peer = node.pool.peers.head(); peer; peer = peer.next)
      all.push({ agent: peer.agent, version: peer.version, height: peer.height, ban: peer.banScore });
    return all;
  }
};

const full = {
  /** Mine blocks to an address, on the best chain. */
  async mine({ count, address }) {
    const hashes = [];
    for (let n = 0; n < count; n++) {
      const block = await node.miner.mineBlock(null, Address.fromString(address, node.network));
      await node.chain.add(block);
      hashes.push(block.rhash());
    }
    return hashes;
  },

  /** Mine a branch of blocks without transactions upon the block `depth` below the tip. */
  async branch({ depth, count, address }) {
    const hashes = [];
    const { mempool } = node.miner;
    let tip = await node.chain.getEntry(node.chain.height - depth);
    node.miner.mempool = null;
    try {
      for (let n = 0; n < count; n++) {
        const block = await node.miner.mineBlock(tip, Address.fromString(address, node.network));
        tip = await node.chain.add(block);
        hashes.push(block.rhash());
      }
    } finally {
      node.miner.mempool = mempool;
    }
    return hashes;
  },

  /** Submit a transaction that was signed elsewhere. */
  async submit({ raw }) {
    const tx = TX.fromRaw(raw, 'hex');
    const missing = await node.mempool.addTX(tx);
    if (missing)
      throw new Error('inputs are unknown or spent');
    return tx.txid();
  }
};

async function answer({ id, method, params }) {
  const known = methods[method] || (mode === 'full' && full[method]);
  try {
    say({ id, result: await (known ? known(params || {}) : node.rpc.execute({ method, params: params || [] })) });
  } catch (error) {
    say({ id, error: `${method}: ${error.message}` });
  }
}

function report() {
  node.on('connect', (entry, block) => {
    say({ event: 'connect', height: entry.height, hash: entry.rhash(), txs: block.txs.map(tx => tx.txid()) });
  });
  node.on('disconnect', entry => say({ event: 'disconnect', height: entry.height, hash: entry.rhash() }));
  node.on('tx', tx => say({ event: 'tx', txid: tx.txid() }));
  node.on('error', error => say({ event: 'error', message: error.message }));
  node.pool.on('peer open', peer => say({ event: 'peer open', agent: peer.agent }));
  node.pool.on('peer close', () => say({ event: 'peer close' }));
  node.pool.on('ban', () => say({ event: 'ban' }));
}

async function main() {
  await node.ensure();
  await node.open();
  await plugin.wdb.primary.createAccount({ name: 'segwit', witness: true });
  report();
  const listening = mode === 'full' ? new Promise(resolve => node.pool.once('listening', resolve)) : {};
  await node.connect();
  node.startSync();
  const { port } = await listening;
  const lines = readline.createInterface({ input: process.stdin });
  let last = Promise.resolve(); // one after the other, in order
  lines.on('line', (line) => {
    last = last.then(() => answer(JSON.parse(line)));
  });
  lines.on('close', () => process.exit(0));
  const rpc = node.http === closed ? 0 : node.http.address().port;
  say({ event: 'ready', port, rpc });
}

main().catch((error) => {
  process.stderr.write(`${error.stack}\n`);
  process.exit(1);
});
