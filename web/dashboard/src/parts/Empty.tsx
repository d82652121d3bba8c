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
  const advice = error instanceof Problem && !/`detail`/.test(error.advice) ? error.advice : "";
  // A detail of one word is what the title speaks of.
  const said = error instanceof Problem && /^\S+$/.test(error.detail) && error.title ? `${error.title}: ${error.detail}` : error.message;
  return (
    <p class="notice bad" role="alert">
      <span><Said text={said} /></span>
      {advice && <span class="small"><Said text={advice} /></span>}
    </p>
  );
}

/** Words in backticks are code. */
function Said({ text }: { text: string }) {
  return <>{text.split(/`([^`]+)`/).map((part, at) => (at % 2 ? <code key={at}>{part}</code> : part))}</>;
}

export function Waiting({ what }: { what: string }) {
  return <p class="empty soft" role="status">Asking for {what} …</p>;
}
