// Figures side by side. The number of figures in a row depends on their total number and on the available width, so
// that rows are full. Tests find a figure by the attribute `data-figure`, and compare it with /metrics.

import { toChildArray, type ComponentChildren } from "preact";

export function Stats({ label, children }: { label: string; children: ComponentChildren }) {
  const n = toChildArray(children).length;
  const across = { "--wide": n <= 6 ? n : Math.ceil(n / 2), "--mid": n <= 4 ? n : n <= 6 ? 3 : 4, "--few": Math.min(n, 2) };
  return <div class="figures"><dl class="stats" aria-label={label} style={across}>{children}</dl></div>;
}

interface Props {
  label: string;
  value: ComponentChildren;
  note?: ComponentChildren;
  tone?: "good" | "warn" | "bad" | undefined;
  figure?: string;
  raw?: number | undefined;
  title?: string;
}

export function Stat({ label, value, note, tone, figure, raw, title }: Props) {
  return (
    <div class="stat" title={title}>
      <dt>{label}</dt>
      <dd class={tone} data-figure={figure} data-raw={raw}>
        {value}
        {note != null && <small>{note}</small>}
      </dd>
    </div>
  );
}
