// The search dialog: finds pages by title, and topics by a part of the name or by a pattern. The node searches the
// topics.

import { useEffect, useState } from "preact/hooks";
import { list } from "../node/topics.ts";
import { PAGES } from "../pages.ts";
import { Dialog } from "../parts/Dialog.tsx";
import { link } from "../route.ts";

const FOUND_MAX = 30;
const PAUSE_MS = 120;

interface Found {
  text: string;
  kind: string;
  href: string;
}

export function Search({ close }: { close: () => void }) {
  const [text, type] = useState("");
  const [chosen, choose] = useState(0);
  const topics = useTopics(text);
  const pages = PAGES.filter((page) => page.title.toLowerCase().includes(text.toLowerCase()));
  const found: Found[] = [
    ...pages.map((page) => ({ text: page.title, kind: "page", href: link(page.name) })),
    ...topics.map((name) => ({ text: name, kind: "topic", href: link("topics", name) })),
  ];
  const go = (one: Found | undefined) => {
    if (!one) return;
    location.hash = one.href;
    close();
  };
  const key = (event: KeyboardEvent) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    // By default, Escape in a search field clears the text. Here it closes the dialog.
    if (event.key === "Escape") close();
    else if (event.key === "Enter") go(found[chosen]);
    else if (step) choose((chosen + step + found.length) % Math.max(1, found.length));
    else return;
    event.preventDefault();
  };
  return (
    <Dialog title="Search" close={close}>
      <div>
        <input class="input" type="search" placeholder="orders, orders.>, cluster …" aria-label="Search topics and pages" autofocus value={text} list={undefined}
          role="combobox" aria-expanded="true" aria-controls="found" aria-activedescendant={found[chosen] ? `found-${chosen}` : undefined}
          onInput={(event) => (type(event.currentTarget.value), choose(0))} onKeyDown={key} />
        {found.length === 0 && <p class="soft" role="status">No page or topic matches.</p>}
        <ul class="found" id="found" role="listbox" aria-label="Found" tabIndex={-1}>
          {found.map((one, index) => (
            <li key={one.href} id={`found-${index}`} role="option" aria-selected={index === chosen} onClick={() => go(one)}>
              <span class="clip">{one.text}</span>
              <span class="soft small">{one.kind}</span>
            </li>
          ))}
        </ul>
      </div>
    </Dialog>
  );
}

function useTopics(text: string): string[] {
  const [names, set] = useState<string[]>([]);
  useEffect(() => {
    const stop = new AbortController();
    const wild = /(^|\.)[*>](\.|$)/.test(text);
    const which = wild ? { pattern: text } : { contains: text };
    const timer = setTimeout(() => {
      list({ ...which, limit: FOUND_MAX }, stop.signal).then((page) => set(page.topics.map((topic) => topic.name)), () => undefined);
    }, PAUSE_MS);
    return () => {
      clearTimeout(timer);
      stop.abort();
    };
  }, [text]);
  return names;
}
