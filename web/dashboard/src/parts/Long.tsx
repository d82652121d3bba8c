// A list of any length that draws only visible rows. Each row is ROW px high. Arrow keys, Page Up and Down, Home and
// End move the selection; Enter opens the selected row. Browsers limit the height of elements to about 16 million px.
// Therefore, a list that would be higher than HEIGHT_MAX scales the scroll position.

import type { ComponentChildren, RefObject } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

export const ROW = 30;
const SPARE = 8;
const HEIGHT_MAX = 8_000_000;

interface Props {
  label: string;
  length: number;
  head: ComponentChildren;
  row: (index: number, place: { class: string; style: Record<string, string>; id: string }) => ComponentChildren;
  /** Called with the range of drawn rows when it changes; `end` is exclusive. */
  seen?: (first: number, end: number) => void;
  choose?: (index: number) => void;
}

export function Long({ label, length, head, row, seen, choose }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const [view, setView] = useState({ top: 0, height: 600 });
  const [chosen, setChosen] = useState(-1);
  const full = length * ROW;
  const height = Math.min(full, HEIGHT_MAX);
  const scale = full > height ? (full - view.height) / Math.max(1, height - view.height) : 1;
  const top = view.top * scale;
  const first = Math.max(0, Math.floor(top / ROW) - SPARE);
  const end = Math.min(length, Math.ceil((top + view.height) / ROW) + SPARE);
  useWatch(box, setView);
  useEffect(() => seen?.(first, end), [first, end, length]);
  const key = (event: KeyboardEvent) => {
    const to = target(event.key, chosen, length, Math.floor(view.height / ROW));
    if (event.key === "Enter" && chosen >= 0) return choose?.(chosen);
    if (to === null) return;
    event.preventDefault();
    setChosen(to);
    show(box.current, to, scale);
  };
  const rows = [];
  for (let index = first; index < end; index += 1) {
    const style = { transform: `translateY(${index * ROW - top + view.top}px)` };
    rows.push(row(index, { class: index === chosen ? "line chosen" : "line", style, id: `${label}-${index}` }));
  }
  return (
    <div class="long" ref={box} tabIndex={0} role="region" aria-label={`${label}, ${length} rows`} onKeyDown={key}>
      {head}
      <div class="sheet" style={{ height: `${height}px` }}>{rows}</div>
    </div>
  );
}

function target(key: string, chosen: number, length: number, page: number): number | null {
  const steps: Record<string, number> = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -length, End: length };
  const step = steps[key];
  return step === undefined ? null : Math.max(0, Math.min(length - 1, chosen + step));
}

function show(box: HTMLElement | null, index: number, scale: number): void {
  if (!box) return;
  const at = (index * ROW) / scale;
  if (at < box.scrollTop) box.scrollTop = at;
  else if (at + 2 * ROW > box.scrollTop + box.clientHeight) box.scrollTop = at + 2 * ROW - box.clientHeight;
}

function useWatch(box: RefObject<HTMLDivElement | null>, set: (view: { top: number; height: number }) => void): void {
  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return;
    const look = () => set({ top: element.scrollTop, height: element.clientHeight });
    const sizes = new ResizeObserver(look);
    sizes.observe(element);
    element.addEventListener("scroll", look, { passive: true });
    return () => {
      sizes.disconnect();
      element.removeEventListener("scroll", look);
    };
  }, []);
}
