// The bar at the top of every page: search, the state of the connection, the colour theme, and the logout button.

import { useEffect, useState } from "preact/hooks";
import { credentials, logOut } from "../node/connection.ts";
import { useConnection } from "../node/hooks.ts";
import type { Stats } from "../node/told.ts";
import { byteRate, rate } from "../quantity.ts";
import { turn, useTheme, type Theme } from "../theme.ts";
import { Keys } from "./Keys.tsx";
import { Search } from "./Search.tsx";
import { useShortcuts } from "./shortcuts.ts";

const NEXT: Record<Theme, Theme> = { system: "light", light: "dark", dark: "system" };
const SHOWN: Record<Theme, string> = { system: "◐ Auto", light: "○ Light", dark: "● Dark" };

export function Head({ stats }: { stats: Stats | undefined }) {
  const [searching, search] = useState(false);
  const [keys, showKeys] = useState(false);
  useShortcuts({ search: () => search(true), keys: () => showKeys(true) });
  return (
    <div class="head" role="region" aria-label="Node">
      <button type="button" class="button" onClick={() => search(true)}>
        <span aria-hidden="true">⌕</span> Search topics and pages <kbd aria-hidden="true">/</kbd>
      </button>
      <span class="grow" />
      <State />
      {stats && <span class="soft small num">{rate(stats.rates?.records_per_s)} · {byteRate(stats.rates?.bytes_per_s)}</span>}
      <ThemeButton />
      {credentials() !== null && <button type="button" class="button bare" onClick={logOut}>Log out</button>}
      {searching && <Search close={() => search(false)} />}
      {keys && <Keys close={() => showKeys(false)} />}
    </div>
  );
}

function State() {
  const { reach } = useConnection();
  const [tone, text] = ({ up: ["good", "connected"], away: ["bad", "unreachable"], asking: ["", "connecting"], login: ["warn", "log in"] } as const)[reach];
  return <span class={`pill ${tone}`} role="status" data-reach={reach}>{text}</span>;
}

function ThemeButton() {
  const [theme] = useTheme();
  const [, again] = useState(0);
  useEffect(() => again((n) => n + 1), [theme]);
  return (
    <button type="button" class="button bare" onClick={() => turn(NEXT[theme])} title={`Change the colours to ${NEXT[theme]}`}>
      <span class="hidden-text">Colours: </span>{SHOWN[theme]}
    </button>
  );
}
