// Calls an Electrum client of npm: node calls.js PACKAGE PORT. Reads [METHOD, ARGUMENT…] from each line of its input,
// and prints {"result"} or {"error"} for it, in order. Prints {"told"} for each status of a script that it is told.
'use strict';

const readline = require('readline');

const ElectrumClient = require(process.argv[2]);
const print = (line) => process.stdout.write(JSON.stringify(line) + '\n');

async function main(port) {
  const client = new ElectrumClient(port, '127.0.0.1', 'tcp', null, { onLog: () => {} });
  await client.connect();
  client.subscribe.on('blockchain.scripthash.subscribe', (told) => print({ told }));
  await client.server_version('test', '1.4');
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const [method, ...given] = JSON.parse(line);
    await client[method](...given).then(
      // in place of null, the client of mempool.space returns the whole answer
      (result) => print({ result: result && result.jsonrpc ? result.result : result }),
      (error) => print({ error: String(error.message || error) }),
    );
  }
  process.exit(0); // some clients would connect again
}

main(Number(process.argv[3])).catch((error) => {
  console.error(error);
  process.exit(1);
});
