// Translates pointer events into gestures on a view: dragging, zooming with the wheel or two fingers, and clicks.

import type { View } from "../../space/view.ts";

const CLICK_PX = 4;

export class Pointer {
  private fingers = new Map<number, { x: number; y: number }>();
  private travelled = 0;

  private constructor(private element: HTMLCanvasElement, private view: View, private clicked: (px: number, py: number) => void) {}

  static attach(element: HTMLCanvasElement, view: View, clicked: (px: number, py: number) => void): () => void {
    const pointer = new Pointer(element, view, clicked);
    const stop = new AbortController();
    const on = { signal: stop.signal };
    element.addEventListener("pointerdown", (event) => pointer.down(event), on);
    element.addEventListener("pointermove", (event) => pointer.move(event), on);
    element.addEventListener("pointerup", (event) => pointer.up(event), on);
    element.addEventListener("pointercancel", (event) => pointer.fingers.delete(event.pointerId), on);
    element.addEventListener("wheel", (event) => pointer.wheel(event), { ...on, passive: false });
    return () => stop.abort();
  }

  private at(event: MouseEvent): { x: number; y: number } {
    const box = this.element.getBoundingClientRect();
    const scale = this.element.width / Math.max(1, box.width);
    return { x: (event.clientX - box.left) * scale, y: (event.clientY - box.top) * scale };
  }

  private down(event: PointerEvent): void {
    this.element.setPointerCapture(event.pointerId);
    this.fingers.set(event.pointerId, this.at(event));
    this.travelled = 0;
  }

  private move(event: PointerEvent): void {
    const before = this.fingers.get(event.pointerId);
    if (!before) return;
    const now = this.at(event);
    this.travelled += Math.hypot(now.x - before.x, now.y - before.y);
    const other = [...this.fingers].find(([id]) => id !== event.pointerId)?.[1];
    if (other) {
      const was = Math.hypot(before.x - other.x, before.y - other.y);
      const is = Math.hypot(now.x - other.x, now.y - other.y);
      if (was > 0) this.view.zoomAt((now.x + other.x) / 2, (now.y + other.y) / 2, is / was);
    } else this.view.moveBy(now.x - before.x, now.y - before.y);
    this.fingers.set(event.pointerId, now);
  }

  private up(event: PointerEvent): void {
    const at = this.at(event);
    if (this.fingers.delete(event.pointerId) && this.travelled < CLICK_PX) this.clicked(at.x, at.y);
  }

  private wheel(event: WheelEvent): void {
    event.preventDefault();
    const at = this.at(event);
    this.view.zoomAt(at.x, at.y, Math.exp(-event.deltaY / 400));
  }
}
