// The table of a world's regions, with their owners, standbys and entities.

import type { World } from "../../node/told.ts";
import { Card } from "../../parts/Card.tsx";
import { Table } from "../../parts/Table.tsx";
import { exact, span } from "../../quantity.ts";
import { css, hue } from "../../space/draw.ts";
import type { RegionScene, Scene } from "../../space/scene.ts";

const STALE_MS = 1500;

export function Regions({ world, scene }: { world: World; scene: Scene }) {
  const now = performance.now();
  const dark = document.documentElement.dataset.theme === "dark";
  const ghosts = world.regions.some((region) => scene.regions.get(region.region)?.picture.ghosts != null);
  const address = new Map(world.processes.map((process) => [process.process, process.address]));
  return (
    <Card title="Regions" flush>
      <Table label="Regions" rows={world.regions} id={(region) => String(region.region)} columns={[
        { head: "Region", by: (region) => region.region, cell: (region) => <><span class="dot" aria-hidden="true" style={{ background: css(hue(region.region, dark)) }} /> {region.region}</> },
        { head: "Process", cell: (region) => region.process == null ? <span class="bad">none</span> : <>{region.process} <span class="soft small mono">{address.get(region.process)}</span></> },
        { head: "Standby", cell: (region) => region.standby == null ? <span class="warn">none</span> : region.standby },
        { head: "Epoch", num: true, cell: (region) => exact(region.epoch) },
        { head: "Entities", num: true, by: (region) => scene.regions.get(region.region)?.picture.count ?? 0, cell: (region) => exact(scene.regions.get(region.region)?.picture.count) },
        ...(ghosts ? [{ head: "Ghosts", num: true, cell: (region: World["regions"][number]) => exact(scene.regions.get(region.region)?.picture.ghosts) }] : []),
        { head: "Handed over", num: true, cell: (region) => exact(scene.regions.get(region.region)?.picture.handedOver) },
        { head: "Tick", num: true, cell: (region) => exact(scene.regions.get(region.region)?.picture.tick) },
        { head: "State", cell: (region) => <Age region={scene.regions.get(region.region)} now={now} /> },
      ]} />
    </Card>
  );
}

function Age({ region, now }: { region: RegionScene | undefined; now: number }) {
  if (!region) return <span class="pill">no picture yet</span>;
  if (now - region.at > STALE_MS) return <span class="pill warn">no picture for {span((now - region.at) / 1000)}</span>;
  if (now - region.tickedAt > STALE_MS) return <span class="pill warn">no tick for {span((now - region.tickedAt) / 1000)}</span>;
  return <span class="pill good">running</span>;
}
