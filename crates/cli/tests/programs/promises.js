// Promises, timers, buffers and maps in Node, each checked against a second account of itself.
//
// - chains of promises and async generators whose sums are known beforehand;
// - timers of several lengths: none early, all of them, intervals included;
// - Maps, Sets and typed arrays beside copies kept another way; big integers modulo a prime;
// - hashes and compression of buffers (worker threads inside Node), garbage in plenty.
//
// The output does not depend on timing. Usage: promises.js [ROUNDS]
'use strict';
const crypto = require('crypto');
const zlib = require('zlib');
const { promisify } = require('util');

const rounds = Number(process.argv[2] || 300);
const deflate = promisify(zlib.deflate);
const inflate = promisify(zlib.inflate);
const scrypt = promisify(crypto.pbkdf2);

function check(holds, what) {
  if (holds) return;
  require('fs').writeSync(2, `promises.js: does not hold: ${what}\n`);
  process.abort();
}

// A small generator of our own, with 32-bit arithmetic only.
let state = 99;
function below(n) {
  state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
  return (state >>> 8) % n;
}

// ---- a map, and the same content as one array a bucket ----

const shelf = new Map();
const buckets = Array.from({ length: 64 }, () => new Set());

function shelfStep() {
  const n = below(6000);
  const key = `key-${n}`;
  const bucket = buckets[n % 64];
  check(shelf.has(key) === bucket.has(n), `the map and its bucket disagree about ${key}`);
  if (shelf.has(key)) {
    const value = shelf.get(key);
    check(value.name === key && value.list.every((x, i) => x === n + i), `the value of ${key}`);
    shelf.delete(key);
    bucket.delete(n);
  } else {
    shelf.set(key, { name: key, list: Array.from({ length: below(40) }, (_, i) => n + i) });
    bucket.add(n);
  }
}

// ---- typed arrays and buffers ----

const plain = new Array(20000).fill(0);
const typed = new Int32Array(20000);

function arraysStep() {
  for (let i = 0; i < 3000; i++) {
    const at = below(20000);
    check(plain[at] === typed[at], `element ${at} differs in its two arrays`);
    plain[at] = typed[at] = below(1 << 24) - (1 << 23);
  }
}

async function buffersStep() {
  const bytes = Buffer.alloc(50000 + below(50000));
  for (let i = 0; i < bytes.length; i += 4) bytes.writeInt32LE(typed[i % 20000], i < bytes.length - 3 ? i : 0);
  const [packed, key] = await Promise.all([deflate(bytes), scrypt('a', bytes.subarray(0, 16), 60, 32, 'sha256')]);
  const back = await inflate(packed);
  check(back.equals(bytes), 'a buffer did not come back from compression');
  check(key.equals(crypto.pbkdf2Sync('a', bytes.subarray(0, 16), 60, 32, 'sha256')), 'two derived keys differ');
  return crypto.createHash('sha256').update(bytes).digest('hex').slice(0, 16);
}

// ---- promises and timers ----

async function* numbers(n) {
  for (let i = 1; i <= n; i++) {
    if (i % 50 === 0) await new Promise(setImmediate);
    yield i;
  }
}

async function promisesStep() {
  const n = 200 + below(200);
  let sum = 0;
  for await (const i of numbers(n)) sum += i;
  check(sum === (n * (n + 1)) / 2, `an async generator gave ${sum}`);
  let chain = Promise.resolve(0);
  for (let i = 0; i < 500; i++) chain = chain.then((x) => x + i);
  check((await chain) === 124750, 'a chain of promises');
  return n;
}

function timer(ms) {
  const from = performance.now();
  return new Promise((done) =>
    setTimeout(() => {
      // Node rounds a timer's start down to a whole millisecond.
      check(performance.now() - from >= ms - 1, `a timer of ${ms} ms came early`);
      done(ms);
    }, ms)
  );
}

let ticks = 0;
const interval = setInterval(() => ticks++, 2);
let lastTime = process.hrtime.bigint();

function clockStep() {
  const now = process.hrtime.bigint();
  check(now >= lastTime, `the clock went back by ${lastTime - now} ns`);
  lastTime = now;
}

// ---- big integers ----

const prime = (1n << 127n) - 1n;
let big = 3n;
let residue = 3n;

function bigStep() {
  for (let i = 0; i < 20; i++) {
    const factor = BigInt(below(1 << 24)) * 16777259n + 1n;
    big = big * factor + 1n;
    residue = (residue * factor + 1n) % prime;
  }
  check(big % prime === residue, 'a big integer and its residue');
  if (big > 1n << 9000n) big = residue;
}

async function main() {
  const digest = crypto.createHash('sha256');
  for (let round = 1; round <= rounds; round++) {
    const before = ticks;
    for (let i = 0; i < 4000; i++) shelfStep();
    arraysStep();
    bigStep();
    clockStep();
    const [hash, n, ...waited] = await Promise.all([buffersStep(), promisesStep(), timer(1), timer(3), timer(2)]);
    check(waited.join() === '1,3,2', 'timers answered for each other');
    for (let tries = 0; ticks === before; tries++) {
      check(tries < 5000, 'an interval has stopped');
      await timer(1);
    }
    const size = buckets.reduce((sum, bucket) => sum + bucket.size, 0);
    check(size === shelf.size, `the map has ${shelf.size} entries, the buckets ${size}`);
    digest.update(`${hash} ${n} ${size} ${residue}`);
    console.log(`round ${round} of ${rounds}: ${hash} ${size}`);
  }
  clearInterval(interval);
  console.log(`digest ${digest.digest('hex')}`);
}

main();
