// Decodes the picture of a region, which the region's owner publishes on `space.WORLD.map.REGION`. Each field has an
// offset and a type; numbers are little-endian:
//
//   0 u32 version 1 | 4 u32 region | 8 u64 tick | 16 f64 Unix ms | 24 u32 count | 28 u32 ghosts, all ones if unknown
//   32 u32 handed over since the region began there | 36 u32 flags: 1 has z, 2 has kinds | 40 ids u32 × count | x u16 ×
//   count | y u16 × count | [z u16 × count] | [kinds u8 × count]
//
// The coordinates x, y and z run from 0 to 65535 over the world's box. `ids` are the low 32 bits of the entities' ids.

const HEAD_BYTES = 40;
const HAS_Z = 1;
const HAS_KINDS = 2;
const NOT_SAID = 0xffff_ffff;

export interface Picture {
  region: number;
  tick: number;
  atMs: number;
  count: number;
  ghosts: number | null;
  handedOver: number;
  ids: Uint32Array;
  /** The horizontal coordinates on the map; `y` has the vertical coordinates. */
  x: Uint16Array;
  y: Uint16Array;
  /** The entities' kinds, where 255 is any kind above 254; null if all entities are of kind 0. */
  kinds: Uint8Array | null;
  /** The number of entities of each kind. */
  byKind: Map<number, number>;
}

/** The axis along which the user looks at the world. The other two axes are the map's axes. */
export type Along = "x" | "y" | "z";

const ACROSS_AND_UP: Record<Along, [number, number]> = { x: [1, 2], y: [0, 2], z: [0, 1] };

/** The axes of the map, as indexes; the horizontal axis is first. */
export function seen(along: Along): [number, number] {
  return ACROSS_AND_UP[along];
}

/**
 * Decodes a picture from a payload, as seen along an axis. Returns null if the payload is not a picture or has an
 * unknown version.
 */
export function decode(payload: Uint8Array, along: Along = "z"): Picture | null {
  if (payload.length < HEAD_BYTES) return null;
  // The copy is aligned, as typed arrays require. It stays valid when the connection reuses its buffer.
  const bytes = payload.slice();
  const view = new DataView(bytes.buffer);
  const count = view.getUint32(24, true);
  const flags = view.getUint32(36, true);
  const columns = flags & HAS_Z ? 3 : 2;
  const each = 4 + 2 * columns + (flags & HAS_KINDS ? 1 : 0);
  if (view.getUint32(0, true) !== 1 || bytes.length < HEAD_BYTES + count * each) return null;
  const [across, up] = flags & HAS_Z ? seen(along) : seen("z");
  const xs = HEAD_BYTES + 4 * count;
  const column = (n: number) => new Uint16Array(bytes.buffer, xs + 2 * count * n, count);
  const kinds = flags & HAS_KINDS ? new Uint8Array(bytes.buffer, xs + 2 * count * columns, count) : null;
  return {
    region: view.getUint32(4, true),
    tick: Number(view.getBigUint64(8, true)),
    atMs: view.getFloat64(16, true),
    count,
    ghosts: view.getUint32(28, true) === NOT_SAID ? null : view.getUint32(28, true),
    handedOver: view.getUint32(32, true),
    ids: new Uint32Array(bytes.buffer, HEAD_BYTES, count),
    x: column(across),
    y: column(up),
    kinds,
    byKind: counted(kinds, count),
  };
}

function counted(kinds: Uint8Array | null, count: number): Map<number, number> {
  const counts = new Uint32Array(256);
  if (kinds) for (const kind of kinds) counts[kind] = (counts[kind] as number) + 1;
  else counts[0] = count;
  const all = new Map<number, number>();
  counts.forEach((many, kind) => many > 0 && all.set(kind, many));
  return all;
}
