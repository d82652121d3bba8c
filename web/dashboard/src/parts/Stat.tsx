// Figures, side by side. `figure` names one for the tests, which compare it with /metrics.

import type { ComponentChildren } from "preact";

export function Stats({ label, children }: { label: string; children: ComponentChildren }) {
  return <dl class="stats" aria-label={label}>{children}</dl>;
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
