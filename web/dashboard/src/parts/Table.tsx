// A table that draws all of its rows; `Long` is for long lists. The table scrolls horizontally, and the keyboard can
// focus it. The heading of the sorted column shows the direction.

import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";

export interface Column<T> {
  head: string;
  cell: (row: T) => ComponentChildren;
  /** Whether the column has numbers, which are aligned to the right. */
  num?: boolean;
  /** The value by which rows can be sorted. */
  by?: (row: T) => number | string;
  class?: string;
}

interface Props<T> {
  label: string;
  rows: T[];
  columns: Column<T>[];
  id: (row: T) => string;
  empty?: ComponentChildren;
}

export function Table<T>({ label, rows, columns, id, empty }: Props<T>) {
  const [order, setOrder] = useState<{ head: string; down: boolean } | null>(null);
  if (rows.length === 0 && empty) return <>{empty}</>;
  const by = columns.find((column) => column.head === order?.head)?.by;
  const shown = by ? [...rows].sort((a, b) => compare(by(a), by(b)) * (order?.down ? -1 : 1)) : rows;
  return (
    <div class="scroll" tabIndex={0} role="group" aria-label={label}>
      <table>
        <thead>
          <tr>{columns.map((column) => <Head key={column.head} column={column} order={order} set={setOrder} />)}</tr>
        </thead>
        <tbody>
          {shown.map((row) => (
            <tr key={id(row)}>
              {columns.map((column) => (
                <td key={column.head} class={`${column.num ? "num " : ""}${column.class ?? ""}`}>{column.cell(row)}</td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

type Order = { head: string; down: boolean } | null;

function Head<T>({ column, order, set }: { column: Column<T>; order: Order; set: (order: Order) => void }) {
  const mine = order?.head === column.head;
  const sort = mine ? (order.down ? "descending" : "ascending") : undefined;
  const turn = () => set({ head: column.head, down: mine ? !order.down : Boolean(column.num) });
  return (
    <th scope="col" class={column.num ? "num" : undefined} aria-sort={sort}>
      {column.by ? <button type="button" class="sort" onClick={turn}>{column.head}{mine ? (order.down ? " ↓" : " ↑") : ""}</button> : column.head}
    </th>
  );
}

function compare(a: number | string, b: number | string): number {
  return typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b));
}
