// What stands where there is nothing: why, and what to run to get something.

import type { ComponentChildren } from "preact";
import { Away, Problem } from "../node/ask.ts";
import { Cli } from "./Copy.tsx";

export function Empty({ title, children, run = [] }: { title: string; children?: ComponentChildren; run?: string[] }) {
  return (
    <div class="empty">
      <b>{title}</b>
      {children && <p>{children}</p>}
      {run.map((line) => <Cli key={line} line={line} />)}
    </div>
  );
}

/** What went wrong, in the node's words. Nothing while the node is away: the banner says that. */
export function Failed({ error }: { error: Error | undefined }) {
  if (!error || error instanceof Away) return null;
  const advice = error instanceof Problem ? error.advice : "";
  return (
    <p class="notice bad" role="alert">
      <span>{error.message}</span>
      {advice && <span class="small">{advice}</span>}
    </p>
  );
}

export function Waiting({ what }: { what: string }) {
  return <p class="empty soft" role="status">Asking for {what} …</p>;
}
