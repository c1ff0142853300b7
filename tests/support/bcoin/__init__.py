"""bcoin, a full node in Node.js, as a child process."""
