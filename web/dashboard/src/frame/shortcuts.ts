// Keyboard shortcuts that work on every page, except while a text field has the focus.

import { useEffect } from "preact/hooks";
import { PAGES } from "../pages.ts";
import { link } from "../route.ts";

const CHORD_MS = 1500;

export const SHORTCUTS: [string, string][] = [
  ["/", "search topics and pages"],
  ["g, then a letter", "go to a page"],
  ["?", "show keyboard shortcuts"],
  ["Esc", "close the dialog"],
  ["↑ ↓ Page Home End Enter", "in a list: move the selection, open the selected row"],
  ["Space", "in a tail: pause or continue"],
];

export function useShortcuts(act: { search: () => void; keys: () => void }): void {
  useEffect(() => {
    let since = 0;
    const pressed = (event: KeyboardEvent) => {
      if (event.ctrlKey || event.metaKey || event.altKey || typing(event.target) || document.querySelector("dialog[open]")) return;
      const page = performance.now() - since < CHORD_MS ? PAGES.find((one) => one.key === event.key) : undefined;
      since = 0;
      if (page) location.hash = link(page.name);
      else if (event.key === "g") since = performance.now();
      else if (event.key === "/") act.search();
      else if (event.key === "?") act.keys();
      else return;
      event.preventDefault();
    };
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, []);
}

function typing(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && (target.isContentEditable || ["INPUT", "TEXTAREA", "SELECT"].includes(target.tagName));
}
