// The page Topics: the list of all topics, or one topic.

import { useState } from "preact/hooks";
import { useNode } from "../node/live.ts";
import type { Stats } from "../node/told.ts";
import { CopyAsCli } from "../parts/Copy.tsx";
import { Empty, Failed } from "../parts/Empty.tsx";
import { Long } from "../parts/Long.tsx";
import { bytes, count, exact, rate } from "../quantity.ts";
import { keep, link, type Route } from "../route.ts";
import { command } from "../shell.ts";
import { Create } from "./topics/Create.tsx";
import { useTopicList, type Shown } from "./topics/list.ts";
import { Topic } from "./topics/Topic.tsx";
import { ownerText } from "../node/topics.ts";

export function Topics({ route }: { route: Route }) {
  const name = route.rest[0];
  return name === undefined ? <All route={route} /> : <Topic key={name} name={name} route={route} />;
}

function All({ route }: { route: Route }) {
  const text = route.query.get("find") ?? "";
  const wild = /(^|\.)[*>](\.|$)/.test(text);
  const list = useTopicList(text === "" ? {} : wild ? { pattern: text } : { contains: text });
  const { data: stats } = useNode<Stats>("stats");
  const [creating, create] = useState(false);
  const cli = wild ? command("dunlin", "topics", "list", text) : "dunlin topics list";
  return (
    <>
      <div class="title">
        <h1>Topics</h1>
        {stats && <span class="soft">{exact(stats.topics)} on this node</span>}
        <span class="right">
          <CopyAsCli line={cli} />
          <button type="button" class="button first" onClick={() => create(true)}>Create a topic</button>
        </span>
      </div>
      <div class="row">
        <label class="field" style={{ flex: "1 1 260px" }}>
          Part of a name, or a pattern such as <code>orders.&gt;</code>
          <input class="input mono" type="search" spellcheck={false} value={text} onInput={(event) => keep({ find: event.currentTarget.value })} />
        </label>
        <span class="soft small" role="status">{count(list.rows.length)} {list.more ? "loaded, more exist" : "found"}</span>
        {list.more && list.rows.length > 0 && <button type="button" class="button" onClick={list.all}>Load all</button>}
      </div>
      <Failed error={list.error} />
      <section class="card" aria-label="All topics">
        {list.rows.length === 0 && !list.loading && !list.error
          ? <Nothing text={text} />
          : <Long label="Topics" length={list.rows.length} head={<Header />} seen={list.seen}
              choose={(index) => (location.hash = link("topics", list.rows[index]?.name ?? ""))}
              row={(index, place) => <Line key={index} topic={list.rows[index]} place={place} />} />}
      </section>
      {creating && <Create close={() => create(false)} suggested={wild ? "" : text} />}
    </>
  );
}

function Header() {
  return (
    <div class="line top" aria-hidden="true">
      <span>Topic</span><span class="num">Rate</span><span class="num">Appended</span>
      <span class="num wide">Retained</span><span class="num wide">Bytes</span><span class="wide">Owner</span>
    </div>
  );
}

function Line({ topic, place }: { topic: Shown | undefined; place: { class: string; style: Record<string, string>; id: string } }) {
  if (!topic) return null;
  if (topic.refused) {
    return <div {...place}><span class="mono clip">{topic.name}</span><span class="bad clip" title={topic.refused}>{topic.refused}</span></div>;
  }
  return (
    <a {...place} href={link("topics", topic.name)} tabIndex={-1}>
      <span class="mono clip" title={topic.name}>{topic.name} {topic.durable && <span class="pill">durable</span>} {topic.state && <span class="pill accent">{topic.state}</span>}</span>
      <span class="num">{topic.rate === undefined ? "–" : rate(topic.rate)}</span>
      <span class="num">{count(topic.records)}</span>
      <span class="num wide">{count(topic.retained_records)}</span>
      <span class="num wide">{bytes(topic.retained_bytes)}</span>
      <span class={`wide small clip ${topic.owner?.alive === false ? "bad" : "soft"}`}>{ownerText(topic.owner)}</span>
    </a>
  );
}

function Nothing({ text }: { text: string }) {
  if (text) return <Empty title={`No topic matches ${text}`}>In a pattern, <code>*</code> matches one token and <code>&gt;</code> all that follow.</Empty>;
  return <Empty title="There are no topics yet" run={["dunlin pub orders.eu '{\"qty\":5}'", "yes tick | dunlin pub ticks"]}>The first published record creates a topic.</Empty>;
}
