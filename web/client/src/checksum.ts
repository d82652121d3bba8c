/** Checksums of states. docs/feeds.md describes them: a checksum is the sum of 64-bit hashes of the state's entries. */

const FACTOR = 0xd6e8feb86659fd93n;
const BID = 0x9e3779b97f4a7c15n;
const ASK = 0xc2b2ae3d27d4eb4fn;
const MASK = (1n << 64n) - 1n;

function mix(hash: bigint, word: bigint): bigint {
  const product = (hash ^ (word & MASK)) * FACTOR;
  return (product & MASK) ^ (product >> 64n);
}

/** The hash of a price level. */
export function level(isBid: boolean, price: number, size: number): bigint {
  return mix(mix(isBid ? BID : ASK, BigInt(price)), BigInt(size));
}
