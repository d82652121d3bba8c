// All entities of a world, from the newest picture of each region. Each entity also has its position in the previous
// picture, so that frames between two pictures can show the movement.
//
// Previous positions are stored by id in a table for all regions, so that the movement continues, and is counted, when
// an entity crosses a border between regions. The table has PLACES entries, which several ids may share. An entity may
// therefore find the position of another entity. If the found position is at least JUMP away, it is ignored.

import type { Picture } from "./frame.ts";

const PLACES = 1 << 20;
const JUMP = 65_536 / 12;
const INTERVAL_MS_MIN = 20;
const INTERVAL_MS_MAX = 1000;

export interface RegionScene {
  picture: Picture;
  /** The previous x coordinate of each entity, in the same order as in the picture; `fromY` has the y coordinates. */
  fromX: Uint16Array;
  fromY: Uint16Array;
  /** The time at which the picture arrived, ms. */
  at: number;
  /** The time at which the region's tick last changed, ms. */
  tickedAt: number;
  interval: number;
}

export class Scene {
  readonly regions = new Map<number, RegionScene>();
  /** The number of entities that moved from one region to another. */
  crossings = 0;
  pictures = 0;
  /** The sum of the ticks that have passed in each region. */
  ticks = 0;
  private lastX = new Uint16Array(PLACES);
  private lastY = new Uint16Array(PLACES);
  /** The region in which an id was last seen, plus one; 0 for an unseen id. */
  private lastRegion = new Uint16Array(PLACES);

  take(picture: Picture, now: number): void {
    const before = this.regions.get(picture.region);
    if (before && before.picture.tick > picture.tick && before.picture.atMs > picture.atMs) return;
    const { count, ids, x, y } = picture;
    const mark = (picture.region + 1) & 0xffff;
    const fromX = sized(before?.fromX, count);
    const fromY = sized(before?.fromY, count);
    for (let row = 0; row < count; row += 1) {
      const place = (ids[row] as number) & (PLACES - 1);
      const [nowX, nowY] = [x[row] as number, y[row] as number];
      const [wasX, wasY, was] = [this.lastX[place] as number, this.lastY[place] as number, this.lastRegion[place] as number];
      const near = was !== 0 && Math.abs(wasX - nowX) < JUMP && Math.abs(wasY - nowY) < JUMP;
      fromX[row] = near ? wasX : nowX;
      fromY[row] = near ? wasY : nowY;
      if (near && was !== mark) this.crossings += 1;
      this.lastX[place] = nowX;
      this.lastY[place] = nowY;
      this.lastRegion[place] = mark;
    }
    const passed = before ? now - before.at : 100;
    const interval = Math.min(INTERVAL_MS_MAX, Math.max(INTERVAL_MS_MIN, passed));
    const passedTicks = before ? picture.tick - before.picture.tick : 0;
    this.ticks += Math.max(0, passedTicks);
    const tickedAt = before && passedTicks === 0 ? before.tickedAt : now;
    this.regions.set(picture.region, { picture, fromX, fromY, at: now, tickedAt, interval });
    this.pictures += 1;
  }

  /** The time of the last tick in any region, ms; null without regions. */
  get tickedAt(): number | null {
    let last: number | null = null;
    for (const region of this.regions.values()) last = Math.max(last ?? 0, region.tickedAt);
    return last;
  }

  get entities(): number {
    let all = 0;
    for (const region of this.regions.values()) all += region.picture.count;
    return all;
  }

  /** The number of entities of each kind. */
  get byKind(): Map<number, number> {
    const all = new Map<number, number>();
    for (const { picture } of this.regions.values()) {
      for (const [kind, count] of picture.byKind) all.set(kind, (all.get(kind) ?? 0) + count);
    }
    return all;
  }

  /** The entity nearest to a position in the world's box, within `reach`. */
  nearest(atX: number, atY: number, reach: number): { id: number; region: number; x: number; y: number } | null {
    let found: { id: number; region: number; x: number; y: number } | null = null;
    let best = reach * reach;
    for (const { picture } of this.regions.values()) {
      for (let row = 0; row < picture.count; row += 1) {
        const [dx, dy] = [(picture.x[row] as number) - atX, (picture.y[row] as number) - atY];
        const distance = dx * dx + dy * dy;
        if (distance >= best) continue;
        best = distance;
        found = { id: picture.ids[row] as number, region: picture.region, x: picture.x[row] as number, y: picture.y[row] as number };
      }
    }
    return found;
  }

  where(id: number): { x: number; y: number; region: number } | null {
    for (const { picture } of this.regions.values()) {
      const row = picture.ids.indexOf(id);
      if (row >= 0) return { x: picture.x[row] as number, y: picture.y[row] as number, region: picture.region };
    }
    return null;
  }
}

/** Returns an array for `count` entities. Reuses the previous array if its size fits, to avoid allocations. */
function sized(before: Uint16Array | undefined, count: number): Uint16Array {
  return before && before.length >= count && before.length < 2 * count + 64 ? before : new Uint16Array(Math.ceil(count * 1.25));
}
