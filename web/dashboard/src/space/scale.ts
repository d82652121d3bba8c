// Draws the map's scale over the map: axes with coordinates in the world's units, and a scale bar with a round length.

import { WORLD, type View } from "./view.ts";

/** A range of an axis in the world's units. */
export interface Axis {
  name: string;
  low: number;
  high: number;
}

const APART = 90;
const BAR_PART = 0.22;
const TICK = 6;
const PAD = 4;

/** The largest number that is 1, 2 or 5 times a power of ten and at most `most`. */
export function round(most: number): number {
  const power = 10 ** Math.floor(Math.log10(most));
  const times = most / power;
  return (times >= 5 ? 5 : times >= 2 ? 2 : 1) * power;
}

export function label(value: number): string {
  const size = Math.abs(value);
  if (size !== 0 && (size >= 1e6 || size < 1e-3)) return value.toExponential(0).replace("e+", "e");
  return String(Number(value.toPrecision(6)));
}

/** The number of pixels for one unit of the world, along x and y. Both numbers are equal. */
export function perUnit(view: View): [number, number] {
  const [kx, ky] = view.scales();
  return [(kx * WORLD) / view.across, (ky * WORLD) / view.down];
}

/** The length of the scale bar in the world's units. */
export function bar(view: View): number {
  return round((view.width * BAR_PART) / perUnit(view)[0]);
}

export function drawScale(context: CanvasRenderingContext2D, view: View, [across, up]: [Axis, Axis], ink: string, ground: string, pixel: number): void {
  const { width, height } = view;
  const [unit] = perUnit(view);
  const [left, top] = view.toPixel(0, WORLD);
  const [right, bottom] = view.toPixel(WORLD, 0);
  context.font = `${11 * pixel}px system-ui, sans-serif`;
  context.strokeStyle = context.fillStyle = ink;
  context.lineWidth = pixel;
  const say = (text: string, x: number, y: number, align: CanvasTextAlign, baseline: CanvasTextBaseline) => {
    [context.textAlign, context.textBaseline] = [align, baseline];
    const wide = context.measureText(text).width;
    const from = align === "center" ? x - wide / 2 : align === "right" ? x - wide : x;
    context.fillStyle = ground;
    context.fillRect(from - 2 * pixel, (baseline === "bottom" ? y - 13 * pixel : y - 7 * pixel), wide + 4 * pixel, 14 * pixel);
    context.fillStyle = ink;
    context.fillText(text, x, y);
  };
  context.beginPath();
  const step = Math.max(round((APART * pixel) / unit), Number.MIN_VALUE);
  const foot = Math.min(bottom, height - 1);
  const edge = Math.max(left, 1);
  const shown = (from: number, to: number) => {
    const all: number[] = [];
    for (let at = Math.ceil(from / step) * step; at <= to && all.length < 100; at += step) all.push(at);
    return all;
  };
  const xs = shown(across.low + Math.max(0, -left) / unit, across.low + (Math.min(width, right) - left) / unit);
  const ys = shown(up.low + Math.max(0, bottom - height) / unit, up.low + (bottom - Math.max(0, top)) / unit);
  const atX = (value: number) => left + (value - across.low) * unit;
  const atY = (value: number) => bottom - (value - up.low) * unit;
  for (const value of xs) {
    context.moveTo(atX(value), foot);
    context.lineTo(atX(value), foot - TICK * pixel);
  }
  for (const value of ys) {
    context.moveTo(edge, atY(value));
    context.lineTo(edge + TICK * pixel, atY(value));
  }
  context.stroke();
  for (const value of xs.slice(1)) say(label(value), atX(value), foot - (TICK + PAD) * pixel, "center", "bottom");
  for (const value of ys.slice(1)) say(label(value), edge + (TICK + PAD) * pixel, atY(value), "left", "middle");
  say(across.name, Math.min(right, width) - PAD * pixel, foot - (TICK + PAD) * pixel, "right", "bottom");
  say(up.name, edge + (TICK + PAD) * pixel, Math.max(top, 0) + 9 * pixel, "left", "middle");
  const length = bar(view);
  const [end, line] = [Math.min(right, width) - 12 * pixel, Math.max(top, 0) + 28 * pixel];
  say(label(length), end - (length * unit) / 2, line - 6 * pixel, "center", "bottom");
  context.lineWidth = 2 * pixel;
  context.beginPath();
  context.moveTo(end - length * unit, line - 5 * pixel);
  context.lineTo(end - length * unit, line);
  context.lineTo(end, line);
  context.lineTo(end, line - 5 * pixel);
  context.stroke();
}
