// The colour theme: dark, light, or the system's theme. It is stored in localStorage; if that is not available, the
// choice lasts until the page is closed.

import { useEffect, useState } from "preact/hooks";

export type Theme = "system" | "light" | "dark";

const KEY = "dunlin.theme";
const changed = new EventTarget();
let theme: Theme = read();

export function begin(): void {
  apply();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", apply);
}

export function turn(to: Theme): void {
  theme = to;
  try {
    localStorage.setItem(KEY, to);
  } catch {
    // The browser may refuse access to localStorage, for example in private windows.
  }
  apply();
}

/** Returns the user's choice, and a number that changes when the colours change, so that canvases are drawn again. */
export function useTheme(): [Theme, number] {
  const [drawn, again] = useState(0);
  useEffect(() => {
    const heard = () => again((n) => n + 1);
    changed.addEventListener("change", heard);
    return () => changed.removeEventListener("change", heard);
  }, []);
  return [theme, drawn];
}

/** The current value of a colour in styles.css. */
export function colour(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

function apply(): void {
  const dark = theme === "dark" || (theme === "system" && matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  changed.dispatchEvent(new Event("change"));
}

function read(): Theme {
  try {
    const kept = localStorage.getItem(KEY);
    return kept === "light" || kept === "dark" ? kept : "system";
  } catch {
    return "system";
  }
}
