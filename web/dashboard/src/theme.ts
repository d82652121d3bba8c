// Dark, light, or the system's theme. Stored in localStorage; if that is not available, kept until the page
// is closed.

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
    // Private windows may refuse this. The choice then lasts until the page is closed.
  }
  apply();
}

/** The choice, and a number that changes with the colours. Canvases draw again when this number changes. */
export function useTheme(): [Theme, number] {
  const [drawn, again] = useState(0);
  useEffect(() => {
    const heard = () => again((n) => n + 1);
    changed.addEventListener("change", heard);
    return () => changed.removeEventListener("change", heard);
  }, []);
  return [theme, drawn];
}

/** The present value of a colour of styles.css. */
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
