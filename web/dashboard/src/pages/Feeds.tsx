// The page Feeds: the list of state topics, and a live view of one state topic. The view shows the price levels and the
// depth of an order book, or the last value of each key.

import { ask } from "../node/ask.ts";
import { useAsked } from "../node/hooks.ts";
import { list, path, type TopicInfo, type TopicLine } from "../node/topics.ts";
import { Card } from "../parts/Card.tsx";
import { CopyAsCli } from "../parts/Copy.tsx";
import { Empty, Failed, Waiting } from "../parts/Empty.tsx";
import { count } from "../quantity.ts";
import { keep, link, type Route } from "../route.ts";
import { command } from "../shell.ts";
import { BookView } from "./feeds/BookView.tsx";
import { LastView } from "./feeds/LastView.tsx";

const LISTED = 500;

export interface Reducer {
  kind: string;
  options: Record<string, string>;
}

export function Feeds({ route }: { route: Route }) {
  const find = route.query.get("find") ?? "";
  const feeds = useAsked(`feeds ${find}`, (signal) => list({ state: "any", contains: find, limit: LISTED }, signal), 3000);
  // The list omits regions of worlds, which the page Space shows, and system topics such as `$node`.
  const all = (feeds.data?.topics ?? []).filter((topic) => topic.state && topic.state !== "region" && !topic.name.startsWith("$"));
  const name = route.rest[0] ?? all[0]?.name;
  if (!name) {
    return (
      <>
        <h1>Feeds</h1>
        <Failed error={feeds.error} />
        {feeds.data ? <section class="card"><Nothing /></section> : !feeds.error && <Waiting what="state topics" />}
      </>
    );
  }
  return (
    <>
      <div class="title">
        <h1>Feeds</h1>
        <span class="right"><CopyAsCli line={command("dunlin", "feed", "watch", name)} /></span>
      </div>
      <Failed error={feeds.error} />
      <div class="sides">
        <Names all={all} chosen={name} find={find} more={feeds.data?.more ?? false} />
        <div class="stack"><Feed key={name} name={name} /></div>
      </div>
    </>
  );
}

function Names({ all, chosen, find, more }: { all: TopicLine[]; chosen: string; find: string; more: boolean }) {
  return (
    <Card title={`${count(all.length)} state topics${more ? ", and more" : ""}`} flush>
      <div class="body">
        <input class="input" type="search" placeholder="Part of a name" aria-label="Find a feed" value={find} onInput={(event) => keep({ find: event.currentTarget.value })} />
      </div>
      <ul class="names">
        {all.map((topic) => (
          <li key={topic.name}>
            <a href={link("feeds", topic.name)} aria-current={topic.name === chosen ? "true" : undefined}>
              <span class="mono clip" title={topic.name}>{topic.name}</span><span class="small soft">{topic.state}</span>
            </a>
          </li>
        ))}
      </ul>
    </Card>
  );
}

function Feed({ name }: { name: string }) {
  const asked = useAsked(`feed ${name}`, (signal) => ask<TopicInfo>(path(name), { signal }), 5000);
  if (!asked.data) return asked.error ? <Failed error={asked.error} /> : <Waiting what="the topic" />;
  const reducer = asked.data.config.reducer as Reducer | null;
  // The topic is subscribed by its pattern, because its name may not be one of its subjects.
  const pattern = asked.data.config.pattern ?? name;
  if (reducer?.kind === "book" || reducer?.kind === "orders") return <BookView topic={name} pattern={pattern} reducer={reducer} partitions={Number(asked.data.config.partitions ?? 1)} />;
  if (reducer?.kind === "last") return <LastView pattern={pattern} />;
  return <section class="card"><Empty title={reducer ? `This page cannot show states of kind ${reducer.kind}` : "This topic keeps no state"}><a href={link("topics", name)}>Show the topic</a></Empty></section>;
}

function Nothing() {
  return (
    <Empty title="No topic keeps a state yet" run={["dunlin feed serve --config baseline_1x1_10k", "dunlin topics create quotes --reducer last"]}>
      A state topic keeps an order book or the last value of each key. To create one:
    </Empty>
  );
}
