// The lines of a live view of records. Only visible lines are drawn. The view follows new lines until the user scrolls
// up.

import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { exact } from "../../quantity.ts";
import { preview } from "../../text.ts";
import type { Rec, Row } from "./tail.ts";

const ROW = 22;
const SPARE = 6;

interface Props {
  rows: Row[];
  held: boolean;
  toggle: () => void;
  chosen: Rec | null;
  choose: (record: Rec) => void;
}

export function Rows({ rows, held, toggle, chosen, choose }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const [top, scroll] = useState(0);
  const atEnd = useRef(true);
  const height = box.current?.clientHeight ?? 420;
  useLayoutEffect(() => {
    if (box.current && atEnd.current && !held) box.current.scrollTop = box.current.scrollHeight;
  });
  const moved = () => {
    const element = box.current;
    if (!element) return;
    atEnd.current = element.scrollTop + element.clientHeight > element.scrollHeight - 2 * ROW;
    scroll(element.scrollTop);
  };
  const first = Math.max(0, Math.floor(top / ROW) - SPARE);
  const end = Math.min(rows.length, Math.ceil((top + height) / ROW) + SPARE);
  const key = (event: KeyboardEvent) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (event.key === " ") toggle();
    else if (step) {
      const records = rows.filter((row): row is Rec => row.kind === "record");
      const at = chosen ? records.indexOf(chosen) + step : records.length - 1;
      const next = records[Math.max(0, Math.min(records.length - 1, at))];
      if (next) choose(next);
    } else return;
    event.preventDefault();
  };
  return (
    <div class="tail" ref={box} tabIndex={0} role="log" aria-live="off" aria-label="Records" onScroll={moved} onKeyDown={key}>
      <div style={{ height: `${rows.length * ROW}px` }}>
        {rows.slice(first, end).map((row, index) => (
          <Line key={row.n} row={row} y={(first + index) * ROW} chosen={row === chosen} choose={choose} />
        ))}
      </div>
    </div>
  );
}

function Line({ row, y, chosen, choose }: { row: Row; y: number; chosen: boolean; choose: (record: Rec) => void }) {
  const style = { transform: `translateY(${y}px)` };
  if (row.kind === "said") return <div class={`rec said ${row.tone === "bad" ? "bad" : ""}`} style={style}><span title={row.text}>{row.text}</span></div>;
  return (
    <div class={chosen ? "rec chosen" : "rec"} style={style} onClick={() => choose(row)}>
      <span class="soft wide">{clock(row.timeMs)}</span>
      <span class="num" title={row.position}>{exact(Number(row.position.slice(row.position.indexOf("-") + 1)))}</span>
      <span class="wide" title={row.subject}>{row.subject}</span>
      <span>{preview(row.payload)}</span>
    </div>
  );
}

function clock(ms: number): string {
  const at = new Date(ms);
  return `${at.toLocaleTimeString("en-GB")}.${String(Math.floor(ms % 1000)).padStart(3, "0")}`;
}
