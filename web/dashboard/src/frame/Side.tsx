// The menu of pages at the left side; on a phone, a line at the top.

import { useEffect } from "preact/hooks";
import { PAGES } from "../pages.ts";
import { link, type Route } from "../route.ts";
import type { Stats } from "../node/told.ts";
import { span } from "../quantity.ts";

export function Side({ route, stats }: { route: Route; stats: Stats | undefined }) {
  useEffect(() => {
    document.querySelector(".nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
  }, [route.page]);
  return (
    <header class="side">
      <a class="brand" href={link("overview")} aria-label="Dunlin, overview"><img src="icon.svg" alt="" width={24} height={24} /><span>Dunlin</span></a>
      <nav aria-label="Pages">
        <ul class="nav">
          {PAGES.map((page) => (
            <li key={page.name}>
              <a href={link(page.name)} aria-current={route.page === page.name ? "page" : undefined}>
                {page.title}
                <kbd aria-hidden="true">g {page.key}</kbd>
              </a>
            </li>
          ))}
        </ul>
      </nav>
      <div class="foot">
        {stats && <span>{stats.name || "node"} · {stats.version}</span>}
        {stats && <span>up {span(stats.uptime_s)}</span>}
        <span><kbd>/</kbd> search · <kbd>?</kbd> shortcuts</span>
      </div>
    </header>
  );
}
