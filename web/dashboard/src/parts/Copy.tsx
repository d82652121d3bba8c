// A command, and a button that copies it. If the browser refuses access to the clipboard, the button selects the text
// instead. The command contains the address of the shown node if necessary.

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

/** The command with the same output as the page. */
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
