// Buttons that copy text, and a command line with such a button. Command lines contain the address of the displayed
// node if the command would not find it by default.

import { useRef, useState } from "preact/hooks";
import { useNode } from "../node/live.ts";
import type { Stats } from "../node/told.ts";
import { toNode } from "../shell.ts";

/** Adds the node's address to a command line. */
function useToNode(): (line: string) => string {
  const { data } = useNode<Stats>("stats");
  const address = data?.listeners?.find((listener) => listener.protocol === "tcp")?.address;
  return (line) => toNode(line, address, location.hostname);
}

/** A button that copies the command whose output corresponds to the page. */
export function CopyAsCli({ line }: { line: string }) {
  return <Copy text={useToNode()(line)} label="Copy as CLI" />;
}

export function Copy({ text, label = "Copy" }: { text: string; label?: string }) {
  const [done, set] = useState(false);
  const copy = async () => {
    await navigator.clipboard?.writeText(text).catch(() => undefined);
    set(true);
    setTimeout(() => set(false), 1200);
  };
  return (
    <button type="button" class="button" onClick={copy} title={text}>
      <span aria-live="polite">{done ? "Copied" : label}</span>
    </button>
  );
}

export function Cli({ line: plain }: { line: string }) {
  const line = useToNode()(plain);
  const code = useRef<HTMLElement>(null);
  const [done, set] = useState(false);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(line);
      set(true);
      setTimeout(() => set(false), 1200);
    } catch {
      if (code.current) getSelection()?.selectAllChildren(code.current);
    }
  };
  return (
    <span class="cli">
      <code ref={code} tabIndex={0}>{line}</code>
      <button type="button" class="button bare" aria-label={`Copy: ${line}`} onClick={copy}>{done ? "✓" : "Copy"}</button>
    </span>
  );
}
