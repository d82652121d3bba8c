// Space: the worlds whose processes agree through this node, and the map of one of them.

import { useEffect, useRef, useState } from "preact/hooks";
import { live } from "../client.ts";
import { useSession } from "../node/hooks.ts";
import { useNode } from "../node/live.ts";
import type { Spaces, World } from "../node/told.ts";
import { Card } from "../parts/Card.tsx";
import { Copy } from "../parts/Copy.tsx";
import { Empty, Failed, Waiting } from "../parts/Empty.tsx";
import { Stat, Stats } from "../parts/Stat.tsx";
import { exact, rate } from "../quantity.ts";
import { link, type Route } from "../route.ts";
import { command } from "../shell.ts";
import { decode } from "../space/frame.ts";
import { Scene } from "../space/scene.ts";
import { MapView } from "./space/MapView.tsx";
import { Regions } from "./space/Regions.tsx";

export function Space({ route }: { route: Route }) {
  const { data, error } = useNode<Spaces>("spaces");
  const worlds = data?.worlds ?? [];
  const world = worlds.find((one) => one.world === route.rest[0]) ?? worlds[0];
  if (!world) {
    return (
      <>
        <h1>Space</h1>
        <Failed error={error} />
        {data ? <section class="card"><Nothing /></section> : !error && <Waiting what="worlds" />}
      </>
    );
  }
  return (
    <>
      <div class="title">
        <h1>Space</h1>
        {worlds.map((one) => <a key={one.world} class={`pill ${one === world ? "accent" : ""}`} href={link("space", one.world)} aria-current={one === world ? "true" : undefined}>{one.world}</a>)}
        <span class="right"><Copy text={command("dunlin", "space", "watch", world.world)} label="Copy as CLI" /></span>
      </div>
      <Failed error={error} />
      <Shown key={world.world} world={world} />
    </>
  );
}

function Shown({ world }: { world: World }) {
  const [scene, moved] = useScene(world.world);
  const [frames, count] = useState(0);
  const regions = [...scene.regions.values()];
  const handedOver = regions.reduce((all, region) => all + region.picture.handedOver, 0);
  const told = regions.map((region) => region.picture.ghosts).filter((ghosts) => ghosts !== null);
  const owned = world.regions.filter((region) => region.process != null).length;
  return (
    <>
      <Stats label="Of this world">
        <Stat label="Entities" value={exact(scene.entities)} figure="space.entities" raw={scene.entities} />
        <Stat label="Ghosts" value={told.length > 0 ? exact(told.reduce((all, ghosts) => all + ghosts, 0)) : "–"} note="of neighbours, seen over borders" />
        <Stat label="Hand-overs" value={exact(handedOver)} note={`${exact(scene.crossings)} seen by this page`} figure="space.handovers" raw={handedOver} />
        <Stat label="Regions" value={`${owned} of ${world.regions.length}`} tone={owned < world.regions.length ? "warn" : undefined} note={owned < world.regions.length ? "some have no owner now" : "each has an owner"} />
        <Stat label="Processes" value={exact(world.processes.length)} />
        <Stat label="Pictures" value={rate(moved)} note={`drawn at ${frames} frames/s`} figure="space.frames" raw={frames} />
      </Stats>
      <Card title="Map" flush><MapView world={world} scene={scene} frames={count} /></Card>
      <Regions world={world} scene={scene} />
    </>
  );
}

/** The pictures of a world's regions; only the newest counts. */
function useScene(world: string): [Scene, number] {
  const scene = useRef(new Scene());
  const [perSecond, tell] = useState(0);
  const session = useSession();
  useEffect(() => {
    if (session === null) return;
    const subscription = live().subscribe(`space.${world}.map.>`, {
      from: "latest",
      onGap: "newest",
      name: "dashboard map",
      onBatch: (batch) => {
        while (batch.next()) {
          const picture = decode(batch.payload);
          if (picture) scene.current.take(picture, performance.now());
        }
      },
    });
    let before = scene.current.pictures;
    const timer = setInterval(() => {
      tell(scene.current.pictures - before);
      before = scene.current.pictures;
    }, 1000);
    return () => {
      clearInterval(timer);
      subscription.unsubscribe();
    };
  }, [world, session]);
  return [scene.current, perSecond];
}

function Nothing() {
  return (
    <Empty title="No world runs on this node" run={["dunlin space run --processes 2 --flock 20000", "dunlin space join"]}>
      Two processes with a flock of 20,000 between them; the first also holds what they agree on:
    </Empty>
  );
}
