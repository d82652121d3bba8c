// The depth chart of an order book: for each price, the total size from the best price to this price.

import type { Level } from "dunlin";
import { useMemo } from "preact/hooks";
import { Chart, type Line } from "../../parts/Chart.tsx";
import { Empty } from "../../parts/Empty.tsx";
import { count } from "../../quantity.ts";
import type { Scale } from "../../parts/Ladder.tsx";

export function Depth({ bids, asks, scale }: { bids: Level[]; asks: Level[]; scale: Scale }) {
  const { x, lines } = useMemo(() => summed(bids, asks, scale), [bids, asks, scale]);
  if (x.length === 0) return <Empty title="The book is empty" />;
  return <Chart label="Depth" x={x} lines={lines} show={count} time={false} height={330} stepped />;
}

function summed(bids: Level[], asks: Level[], scale: Scale): { x: number[]; lines: Line[] } {
  const price = 10 ** -scale.price;
  const below = sums(bids, scale).reverse();
  const above = sums(asks, scale);
  // In a crossed book, some bids are higher than some asks. Therefore, the rows of both sides are sorted together by
  // price.
  const rows = [...below.map(([at, sum]) => [at * price, sum, null] as const), ...above.map(([at, sum]) => [at * price, null, sum] as const)];
  rows.sort((a, b) => a[0] - b[0]);
  return {
    x: rows.map((row) => row[0]),
    lines: [
      { label: "bids", colour: "bid", values: rows.map((row) => row[1]), area: true, said: below[0]?.[1] ?? 0 },
      { label: "asks", colour: "ask", values: rows.map((row) => row[2]), area: true, said: above.at(-1)?.[1] ?? 0 },
    ],
  };
}

function sums(levels: Level[], scale: Scale): [number, number][] {
  const unit = 10 ** -scale.size;
  let sum = 0;
  return levels.map((level) => {
    sum += level.size * unit;
    return [level.price, sum];
  });
}
