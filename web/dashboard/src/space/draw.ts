// Draws a scene by writing pixels into the canvas' bytes. An entity of kind 0 is a dot of DOT × DOT pixels. An entity
// of another kind is a cross with an outline in its region's colour. Drawing 50,000 dots takes 2 to 3 ms, with or
// without a graphics card.

import type { RegionScene, Scene } from "./scene.ts";
import type { View } from "./view.ts";
import { WORLD } from "./view.ts";

const DOT = 2;
/** The length of a cross' arms, in pixels. */
const ARM = 4;

export class Painter {
  private image: ImageData | null = null;
  private words = new Uint32Array(0);

  constructor(private context: CanvasRenderingContext2D) {}

  /**
   * Draws the scene. `colours` returns a region's colour, and `mark` is the colour of crosses, both as 0xAABBGGRR
   * words.
   */
  paint(scene: Scene, view: View, now: number, colours: (region: number) => number, ground: number, mark: number, edge: string): void {
    const { width, height } = this.context.canvas;
    if (!this.image || this.image.width !== width || this.image.height !== height) {
      this.image = this.context.createImageData(Math.max(1, width), Math.max(1, height));
      this.words = new Uint32Array(this.image.data.buffer);
    }
    this.words.fill(ground);
    for (const [region, scenery] of scene.regions) this.draw(scenery, view, now, colours(region), null);
    // Crosses are drawn after all dots, so that dots do not cover them.
    for (const [region, scenery] of scene.regions) if (scenery.picture.kinds) this.draw(scenery, view, now, colours(region), mark);
    this.context.putImageData(this.image, 0, 0);
    const [left, top] = view.toPixel(0, WORLD);
    const [right, bottom] = view.toPixel(WORLD, 0);
    this.context.strokeStyle = edge;
    this.context.strokeRect(left, top, right - left, bottom - top);
  }

  /** If `mark` is null, draws the entities of kind 0 as dots. Otherwise, draws the other entities as crosses. */
  private draw({ picture, fromX, fromY, at, interval }: RegionScene, view: View, now: number, colour: number, mark: number | null): void {
    const { width, height } = view;
    const [kx, ky] = view.scales();
    const [left, top] = [width / 2 - view.x * kx, height / 2 + view.y * ky];
    // Until the next picture arrives, entities continue to move, at most half of an interval beyond the newest picture.
    const t = Math.min(1.5, (now - at) / interval);
    const { x, y, count, kinds } = picture;
    const size = view.zoom > 4 ? DOT + 1 : DOT;
    for (let row = 0; row < count; row += 1) {
      if (kinds && (kinds[row] === 0) !== (mark === null)) continue;
      const fx = fromX[row] as number;
      const fy = fromY[row] as number;
      const px = (left + (fx + ((x[row] as number) - fx) * t) * kx) | 0;
      const py = (top - (fy + ((y[row] as number) - fy) * t) * ky) | 0;
      if (mark !== null) {
        this.cross(px, py, width, height, colour, mark);
        continue;
      }
      if (px < 0 || py < 0 || px + size > width || py + size > height) continue;
      for (let dy = 0; dy < size; dy += 1) {
        const line = (py + dy) * width + px;
        for (let dx = 0; dx < size; dx += 1) this.words[line + dx] = colour;
      }
    }
  }

  private cross(px: number, py: number, width: number, height: number, colour: number, mark: number): void {
    if (px < ARM + 1 || py < ARM + 1 || px + ARM + 1 >= width || py + ARM + 1 >= height) return;
    for (let dy = -ARM - 1; dy <= ARM + 1; dy += 1) {
      for (let dx = -ARM - 1; dx <= ARM + 1; dx += 1) {
        const [far, near] = [Math.max(Math.abs(dx), Math.abs(dy)), Math.min(Math.abs(dx), Math.abs(dy))];
        if (near > 1 || (near === 1 && far > ARM)) continue;
        this.words[(py + dy) * width + px + dx] = near === 0 && far <= ARM ? mark : colour;
      }
    }
  }
}

/** Converts a CSS colour, #rrggbb, to a word in the canvas' byte order, 0xAABBGGRR. */
export function word(css: string): number {
  const rgb = Number.parseInt(css.replace("#", ""), 16);
  const [r, g, b] = [(rgb >> 16) & 255, (rgb >> 8) & 255, rgb & 255];
  return ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
}

/** Colours of regions, with distant hues for any number of regions. */
export function hue(index: number, dark: boolean): number {
  const turn = (index * 0.618034) % 1;
  const channel = (shift: number) => {
    const wave = 0.5 + 0.5 * Math.cos(2 * Math.PI * (turn + shift));
    return Math.round(dark ? 90 + 165 * wave : 30 + 150 * wave);
  };
  const [r, g, b] = [channel(0), channel(1 / 3), channel(2 / 3)];
  return ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
}

export function css(word: number): string {
  const hex = (value: number) => (value & 255).toString(16).padStart(2, "0");
  return `#${hex(word)}${hex(word >> 8)}${hex(word >> 16)}`;
}
