// Sizes and false-positive rates of Bloom filters: the same results as spvfilter.bloom.sizing and BIP-37's formulas.
// m: bits, k: hash functions, n: keys, p: false-positive rate. tests/test_calculator.py compares the results.
"use strict";

const MAX_COUNT = 2 ** 53 - 1; // above it JavaScript cannot represent every whole number
const MAX_HASH_FUNCS = 1075;
const MAX_FILTER_SIZE = 36000; // BIP-37, bytes
const MAX_BIP37_FUNCS = 50; // BIP-37
const LN2 = Math.LN2;
const CORE_LN2SQUARED = 0.4804530139182014; // Bitcoin Core, bloom.cpp
const CORE_LN2 = 0.6931471805599453;

// ln(1 - e^x) for x < 0, without cancellation
function log1mexp(x) {
  return x > -LN2 ? Math.log(-Math.expm1(x)) : Math.log1p(-Math.exp(x));
}

function approximateRate(bits, hashFuncs, items) {
  return items ? Math.exp(hashFuncs * log1mexp((-hashFuncs * items) / bits)) : 0;
}

// The smallest whole number of bits with which the approximate rate is at most p, near an estimate.
function wholeBits(estimate, capacity, p, hashFuncs) {
  if (!(estimate <= MAX_COUNT)) return null;
  let bits = Math.max(1, Math.ceil(estimate));
  for (let step = 1; approximateRate(bits, hashFuncs, capacity) > p; step *= 2) bits += step; // rounding errors need a few steps
  return bits <= MAX_COUNT ? bits : null;
}

function bitsFor(capacity, p, hashFuncs) {
  return wholeBits((hashFuncs * capacity) / -log1mexp(Math.log(p) / hashFuncs), capacity, p, hashFuncs);
}

function bitsForTaylor(capacity, p, hashFuncs) {
  const fill = Math.exp(Math.log(p) / hashFuncs);
  return wholeBits((hashFuncs * capacity) / (fill + (fill * fill) / 2), capacity, p, hashFuncs);
}

function optimal(capacity, p) {
  const below = Math.max(1, Math.floor(-Math.log2(p)));
  const both = [below, below + 1].map((hashFuncs) => [bitsFor(capacity, p, hashFuncs), hashFuncs]);
  return both.some(([bits]) => bits === null) ? null : both[1][0] < both[0][0] ? both[1] : both[0];
}

function optimalHashFuncs(bits, capacity) {
  const below = Math.min(Math.max(1, Math.floor((bits / capacity) * LN2)), MAX_HASH_FUNCS - 1);
  const cost = (hashFuncs) => hashFuncs * log1mexp((-hashFuncs * capacity) / bits);
  return cost(below + 1) < cost(below) ? below + 1 : below;
}

function capacityFor(bits, p, hashFuncs) {
  let items = Math.floor((bits / hashFuncs) * -log1mexp(Math.log(p) / hashFuncs));
  for (let step = 1; items && approximateRate(bits, hashFuncs, items) > p; step *= 2) items = Math.max(0, items - step);
  return Math.min(items, MAX_COUNT);
}

function optimalCapacity(bits, p) {
  const below = Math.max(1, Math.floor(-Math.log2(p)));
  const [few, many] = [below, below + 1].map((hashFuncs) => [capacityFor(bits, p, hashFuncs), hashFuncs]);
  return many[0] > few[0] ? many : few;
}

// The exact rate for independent uniform functions: a sum over the number j of distinct bits that k probes hit. The sum cancels,
// so it is computed in integers, in units of 2^-precision. The result is null if the computation would take too long.
function exactRate(bits, hashFuncs, items) {
  if (!items) return 0;
  const throws = hashFuncs * items;
  const approximate = approximateRate(bits, hashFuncs, items);
  if (hashFuncs > 64 || throws > MAX_COUNT || !(approximate > 1e-280)) return null;
  const lost = hashFuncs - Math.log2(approximate) + Math.log2(throws); // bits that the sum loses
  const precision = BigInt(Math.ceil(lost) + 80);
  const one = 1n << precision;
  const m = BigInt(bits);
  const power = (base, exponent) => {
    let result = one;
    for (let left = exponent; left; left >>= 1n) {
      if (left & 1n) result = (result * base) >> precision;
      base = (base * base) >> precision;
    }
    return result;
  };
  const most = Math.min(hashFuncs, bits);
  let differences = []; // element i: the probability that i given bits are all 0
  for (let i = 0; i <= most; i++) differences.push(power(((m - BigInt(i)) << precision) / m, BigInt(throws)));
  const distinct = [one, ...Array(most).fill(0n)];
  for (let probe = 0; probe < hashFuncs; probe++) {
    for (let j = most; j > 0; j--) distinct[j] = (distinct[j] * BigInt(j) + distinct[j - 1] * (m - BigInt(j) + 1n)) / m;
    distinct[0] = 0n;
  }
  let rate = 0n;
  for (let j = 1; j <= most; j++) {
    differences = differences.slice(1).map((right, i) => differences[i] - right);
    rate += (distinct[j] * differences[0]) >> precision; // j given bits are all 1
  }
  const shift = Math.max(0, rate.toString(2).length - 64); // bits that a double cannot hold
  return Number(rate >> BigInt(shift)) * 2 ** (shift - Number(precision));
}

// Bitcoin Core's size of a BIP-37 filter. size or hashFuncs may be 0: for a peer such a filter matches everything.
function bip37(elements, p) {
  const bits = (-1 / CORE_LN2SQUARED) * elements * Math.log(p);
  const size = Math.floor(Math.floor(Math.min(bits, MAX_FILTER_SIZE * 8)) / 8);
  const hashFuncs = Math.min(Math.floor(Math.floor((size * 8) / elements) * CORE_LN2), MAX_BIP37_FUNCS);
  return { size, hashFuncs, capped: bits > MAX_FILTER_SIZE * 8, matchesAll: !size || !hashFuncs };
}

// Completes n, p, k and m from the given values: {n, p, k, m, note} or {error}. p is the requested rate, null if it was not given.
function solve({ n, p, k, m }) {
  const has = (value) => value !== null && value !== undefined;
  if (has(n) && !(Number.isInteger(n) && n >= 1 && n <= MAX_COUNT)) return { error: `n is a whole number from 1 to ${MAX_COUNT}` };
  if (has(p) && !(p > 0 && p < 1)) return { error: "p lies between 0 and 1" };
  if (has(k) && !(Number.isInteger(k) && k >= 1 && k <= MAX_HASH_FUNCS)) return { error: `k is a whole number from 1 to ${MAX_HASH_FUNCS}` };
  if (has(m) && !(Number.isInteger(m) && m >= 1 && m <= MAX_COUNT)) return { error: `m is a whole number from 1 to ${MAX_COUNT}` };
  if (has(n) && has(m)) {
    const functions = has(k) ? k : optimalHashFuncs(m, n);
    return { n, p: has(p) ? p : null, k: functions, m, note: has(p) ? "n and m decide the rate; p is only compared with it" : "" };
  }
  if (!has(p)) return { error: "give n and p, n and m, or m and p" };
  if (has(n)) {
    const found = has(k) ? [bitsFor(n, p, k), k] : optimal(n, p);
    return !found || found[0] === null ? { error: "so large a filter cannot be sized here" } : { n, p, k: found[1], m: found[0], note: "" };
  }
  if (!has(m)) return { error: "give n and p, n and m, or m and p" };
  const [capacity, functions] = has(k) ? [capacityFor(m, p, k), k] : optimalCapacity(m, p);
  return capacity ? { n: capacity, p, k: functions, m, note: "" } : { error: "not even one key stays at or below p with so few bits" };
}

const sizing = { approximateRate, bitsFor, bitsForTaylor, optimal, optimalHashFuncs, capacityFor, optimalCapacity, exactRate, bip37, solve };
if (typeof module !== "undefined") module.exports = sizing;
