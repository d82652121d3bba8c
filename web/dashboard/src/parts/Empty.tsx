// Texts in place of content that is missing: the reason, an error, and commands that create content.

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

/**
 * Shows an error with the node's text. Shows nothing while the node is unreachable, because the banner reports that.
 */
export function Failed({ error }: { error: Error | undefined }) {
  if (!error || error instanceof Away) return null;
  const advice = error instanceof Problem && !/`detail`/.test(error.advice) ? error.advice : "";
  // If the detail is only one word, such as a name, the title is shown before it.
  const said = error instanceof Problem && /^\S+$/.test(error.detail) && error.title ? `${error.title}: ${error.detail}` : error.message;
  return (
    <p class="notice bad" role="alert">
      <span><Said text={said} /></span>
      {advice && <span class="small"><Said text={advice} /></span>}
    </p>
  );
}

/** Shows words in backticks as code. */
function Said({ text }: { text: string }) {
  return <>{text.split(/`([^`]+)`/).map((part, at) => (at % 2 ? <code key={at}>{part}</code> : part))}</>;
}

export function Waiting({ what }: { what: string }) {
  return <p class="empty soft" role="status">Loading {what} …</p>;
}
