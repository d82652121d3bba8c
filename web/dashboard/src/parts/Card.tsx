// A box with a heading.

import type { ComponentChildren } from "preact";
import { useId } from "preact/hooks";

interface Props {
  title: ComponentChildren;
  right?: ComponentChildren;
  children: ComponentChildren;
  /** Whether the content fills the box without padding, as tables and lists do. */
  flush?: boolean;
}

export function Card({ title, right, children, flush }: Props) {
  const id = useId();
  return (
    <section class="card" aria-labelledby={id}>
      <header>
        <h2 id={id}>{title}</h2>
        {right && <div class="right">{right}</div>}
      </header>
      {flush ? children : <div class="body">{children}</div>}
    </section>
  );
}
