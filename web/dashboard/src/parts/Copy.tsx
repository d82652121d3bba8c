// A command, and a button that copies it. Without the right to the clipboard the text is selected instead.

import { useRef, useState } from "preact/hooks";

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

export function Cli({ line }: { line: string }) {
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
