// The table of an order book's best price levels, the best at the top. The bar behind a level shows the level's size in
// relation to the largest size.

import type { Level } from "dunlin";

/** The number of digits after the decimal point, for prices and sizes. */
export interface Scale {
  price: number;
  size: number;
}

interface Props {
  bids: Level[];
  asks: Level[];
  scale: Scale;
}

export function Ladder({ bids, asks, scale }: Props) {
  const largest = Math.max(1, ...bids.map((level) => level.size), ...asks.map((level) => level.size));
  return (
    <div class="ladder">
      <Side name="bid" levels={bids} scale={scale} largest={largest} />
      <Side name="ask" levels={asks} scale={scale} largest={largest} />
    </div>
  );
}

function Side({ name, levels, scale, largest }: { name: "bid" | "ask"; levels: Level[]; scale: Scale; largest: number }) {
  const price = (level: Level) => <td class="num"><b>{fixed(level.price, scale.price)}</b></td>;
  const size = (level: Level) => (
    <td class="num">
      <span class="depth" aria-hidden="true" style={{ width: `${(100 * level.size) / largest}%` }} />
      {fixed(level.size, scale.size)}{level.orders === undefined ? "" : ` (${level.orders})`}
    </td>
  );
  const heads = [<th key="size" scope="col" class="num">Size</th>, <th key="price" scope="col" class="num">{name === "bid" ? "Bid" : "Ask"}</th>];
  return (
    <table class={name} aria-label={name === "bid" ? "Bids, the best first" : "Asks, the best first"}>
      <thead><tr>{name === "bid" ? heads : heads.reverse()}</tr></thead>
      <tbody>
        {levels.map((level) => <tr key={level.price}>{name === "bid" ? [size(level), price(level)] : [price(level), size(level)]}</tr>)}
      </tbody>
    </table>
  );
}

function fixed(units: number, decimals: number): string {
  return (units / 10 ** decimals).toFixed(decimals);
}
