// The visible part of the world's box on the map. Both axes have the same scale, so that a circle is drawn as a circle.

export const WORLD = 65_536;
const ZOOM_MAX = 200;

export class View {
  zoom = 1;
  /** The middle of the map, in 65,536ths of the box. */
  x = WORLD / 2;
  y = WORLD / 2;
  /** The size of the canvas in pixels. */
  width = 1;
  height = 1;

  /** `across` and `down` are the width and the height of the box in the world's units. */
  constructor(readonly across: number, readonly down: number) {}

  /** The number of pixels for one 65,536th of the box, along x and y. */
  scales(): [number, number] {
    const fit = Math.min(this.width / this.across, this.height / this.down) * 0.96 * this.zoom;
    return [(fit * this.across) / WORLD, (fit * this.down) / WORLD];
  }

  toPixel(x: number, y: number): [number, number] {
    const [kx, ky] = this.scales();
    return [this.width / 2 + (x - this.x) * kx, this.height / 2 - (y - this.y) * ky];
  }

  toWorld(px: number, py: number): [number, number] {
    const [kx, ky] = this.scales();
    return [this.x + (px - this.width / 2) / kx, this.y - (py - this.height / 2) / ky];
  }

  /** Zooms so that the point under the pointer stays in its place. */
  zoomAt(px: number, py: number, by: number): void {
    const [x, y] = this.toWorld(px, py);
    this.zoom = Math.min(ZOOM_MAX, Math.max(1, this.zoom * by));
    const [nowX, nowY] = this.toWorld(px, py);
    this.moveTo(this.x + x - nowX, this.y + y - nowY);
  }

  moveBy(px: number, py: number): void {
    const [kx, ky] = this.scales();
    this.moveTo(this.x - px / kx, this.y + py / ky);
  }

  moveTo(x: number, y: number): void {
    this.x = Math.min(WORLD, Math.max(0, x));
    this.y = Math.min(WORLD, Math.max(0, y));
  }

  fit(): void {
    this.zoom = 1;
    this.moveTo(WORLD / 2, WORLD / 2);
  }
}
