// The page Space: the worlds whose processes coordinate through this node, and the map of one world.

import { useEffect, useRef, useState } from "preact/hooks";
import { live } from "../client.ts";
import { useSession } from "../node/hooks.ts";
import { useNode } from "../node/live.ts";
import type { Spaces, World } from "../node/told.ts";
import { Card } from "../parts/Card.tsx";
import { CopyAsCli } from "../parts/Copy.tsx";
import { Empty, Failed, Waiting } from "../parts/Empty.tsx";
import { Stat, Stats } from "../parts/Stat.tsx";
import { exact, rate, span } from "../quantity.ts";
import { link, type Route } from "../route.ts";
import { command } from "../shell.ts";
import { decode, type Along } from "../space/frame.ts";
import { Scene } from "../space/scene.ts";
import { MapView } from "./space/MapView.tsx";
import { Regions } from "./space/Regions.tsx";

const STILL_MS = 2_000;

export function Space({ route }: { route: Route }) {
  const { data, error } = useNode<Spaces>("spaces");
  const worlds = data?.worlds ?? [];
  const asked = route.query.get("along");
  const chosen = (["x", "y", "z"] as const).find((axis) => axis === asked);
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
  const along = chosen ?? "z";
  return (
    <>
      <div class="title">
        <h1>Space</h1>
        {worlds.map((one) => <a key={one.world} class={`pill ${one === world ? "accent" : ""}`} href={link("space", one.world)} aria-current={one === world ? "true" : undefined}>{one.world}</a>)}
        <span class="right"><CopyAsCli line={command("dunlin", "space", "watch", world.world)} /></span>
      </div>
      <Failed error={error} />
      <Shown key={`${world.world} ${along}`} world={world} along={along} />
    </>
  );
}

function Shown({ world, along }: { world: World; along: Along }) {
  const [scene, moved] = useScene(world.world, along);
  const [frames, count] = useState(0);
  const regions = [...scene.regions.values()];
  const handedOver = regions.reduce((all, region) => all + region.picture.handedOver, 0);
  const told = regions.map((region) => region.picture.ghosts).filter((ghosts) => ghosts !== null);
  const ticked = scene.tickedAt;
  const still = ticked === null ? 0 : performance.now() - ticked;
  const stands = still > STILL_MS;
  const owned = world.regions.filter((region) => region.process != null).length;
  return (
    <>
      {stands && <p class="notice" role="status" data-said="still">The world has stopped: no region has completed a tick for {span(Math.round(still / 1000))}.</p>}
      <Stats label="This world">
        <Stat label="Entities" value={exact(scene.entities)} note="in the newest pictures, without entities in handover" figure="space.entities" raw={scene.entities} />
        {told.length > 0 && <Stat label="Ghosts" value={exact(told.reduce((all, ghosts) => all + ghosts, 0))} note="copies of entities beyond a border" />}
        <Stat label="Handovers" value={exact(handedOver)} note={`${exact(scene.crossings)} seen by this page`} figure="space.handovers" raw={handedOver} />
        <Stat label="Regions" value={`${owned} of ${world.regions.length}`} tone={owned < world.regions.length ? "warn" : undefined} note={owned < world.regions.length ? "some have no owner" : "each has an owner"} />
        <Stat label="Processes" value={exact(world.processes.length)} />
        <Stat label="Ticks" value={stands ? "none" : rate(moved.ticks / Math.max(1, regions.length))} tone={stands ? "warn" : undefined} note={`${rate(moved.pictures)} pictures, drawn at ${frames} frames/s`} figure="space.frames" raw={frames} />
      </Stats>
      <Card title="Map" flush><MapView world={world} scene={scene} along={along} frames={count} /></Card>
      <Regions world={world} scene={scene} />
    </>
  );
}

/**
 * Subscribes to the pictures of a world's regions. Returns the scene with the newest picture of each region, and rates.
 */
function useScene(world: string, along: Along): [Scene, { pictures: number; ticks: number }] {
  const scene = useRef(new Scene());
  const [perSecond, tell] = useState({ pictures: 0, ticks: 0 });
  const session = useSession();
  useEffect(() => {
    if (session === null) return;
    const subscription = live().subscribe(`space.${world}.map.>`, {
      from: "latest",
      onGap: "newest",
      name: "dashboard map",
      onBatch: (batch) => {
        while (batch.next()) {
          const picture = decode(batch.payload, along);
          if (picture) scene.current.take(picture, performance.now());
        }
      },
    });
    const sums = () => ({ at: performance.now(), pictures: scene.current.pictures, ticks: scene.current.ticks });
    let before = sums();
    const timer = setInterval(() => {
      const now = sums();
      const seconds = (now.at - before.at) / 1000;
      tell({ pictures: Math.round((now.pictures - before.pictures) / seconds), ticks: Math.round((now.ticks - before.ticks) / seconds) });
      before = now;
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
      To run a flock of 20,000 birds on two processes, run the first command, and the second one in another terminal. The world starts when both processes run:
    </Empty>
  );
}
