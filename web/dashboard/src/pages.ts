// The pages in the order of the menu. The key `g`, followed by a page's own key, opens the page.

import type { FunctionComponent } from "preact";
import { Benchmarks } from "./pages/Benchmarks.tsx";
import { Cluster } from "./pages/Cluster.tsx";
import { Feeds } from "./pages/Feeds.tsx";
import { Overview } from "./pages/Overview.tsx";
import { Space } from "./pages/Space.tsx";
import { Topics } from "./pages/Topics.tsx";
import { Work } from "./pages/Work.tsx";
import type { Route } from "./route.ts";

export interface PageOf {
  name: string;
  title: string;
  key: string;
  shown: FunctionComponent<{ route: Route }>;
}

export const PAGES: PageOf[] = [
  { name: "overview", title: "Overview", key: "o", shown: Overview },
  { name: "topics", title: "Topics", key: "t", shown: Topics },
  { name: "feeds", title: "Feeds", key: "f", shown: Feeds },
  { name: "cluster", title: "Cluster", key: "c", shown: Cluster },
  { name: "work", title: "Work", key: "w", shown: Work },
  { name: "space", title: "Space", key: "s", shown: Space },
  { name: "benchmarks", title: "Benchmarks", key: "b", shown: Benchmarks },
];
