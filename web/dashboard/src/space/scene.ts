// All entities of a world, from the newest snapshot of each region and their positions in the previous one,
// so that frames in between can be extrapolated. Previous positions are looked up by id over all regions, so
// that an entity that crosses a border continues and is counted. Several ids may share one of PLACES places,
// so an entity may rarely find another entity's position. If the found position is JUMP or more away, the
// entity is drawn at its own position.

import type { Picture } from "./frame.ts";

const PLACES = 1 << 20;
const JUMP = 65_536 / 12;
const INTERVAL_MS_MIN = 20;
const INTERVAL_MS_MAX = 1000;

export interface RegionScene {
  picture: Picture;
  /** The previous position of each entity, row by row. */
  fromX: Uint16Array;
  fromY: Uint16Array;
  /** The time at which the picture came, ms. */
  at: number;
  /** The time at which the tick last changed, ms. */
  tickedAt: number;
  interval: number;
}

export class Scene {
  readonly regions = new Map<number, RegionScene>();
  /** The number of entities that moved from one region to another. */
  crossings = 0;
  pictures = 0;
  /** The number of ticks that passed, over all regions. */
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

  /** The time of the last tick of any region, ms; null without regions. */
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

/** Returns the previous array if its size fits, so that not every picture of a region allocates a new array. */
function sized(before: Uint16Array | undefined, count: number): Uint16Array {
  return before && before.length >= count && before.length < 2 * count + 64 ? before : new Uint16Array(Math.ceil(count * 1.25));
}
