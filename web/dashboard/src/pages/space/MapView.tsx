// The map of a world. Dragging moves the map, the wheel and the keys + and - zoom, and a click on an entity shows it.

import type { RefObject } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { World } from "../../node/told.ts";
import { exact } from "../../quantity.ts";
import { keep } from "../../route.ts";
import { seen, type Along } from "../../space/frame.ts";
import { hue, Painter, word } from "../../space/draw.ts";
import { bar, drawScale, label, perUnit, type Axis } from "../../space/scale.ts";
import type { Scene } from "../../space/scene.ts";
import { View } from "../../space/view.ts";
import { colour } from "../../theme.ts";
import { Pointer } from "./Pointer.ts";

const AXES: [Along, string][] = [["z", "x and y, from above"], ["y", "x and z, from the front"], ["x", "y and z, from the side"]];
const PIXELS_MAX = 1.5;

interface Props {
  world: World;
  scene: Scene;
  along: Along;
  frames: (perSecond: number) => void;
}

export function MapView({ world, scene, along, frames }: Props) {
  const [across, up] = seen(along);
  const canvas = useRef<HTMLCanvasElement>(null);
  const view = useRef(new View(side(world, across), side(world, up)));
  const [who, point] = useState<{ id: number; region: number } | null>(null);
  const [find, type] = useState("");
  usePainting(canvas, view.current, scene, [axis(world, across), axis(world, up)], frames);
  useEffect(() => {
    const element = canvas.current;
    return element ? Pointer.attach(element, view.current, (px, py) => point(scene.nearest(...view.current.toWorld(px, py), 1500 / view.current.zoom))) : undefined;
  }, []);
  const go = (event: Event) => {
    event.preventDefault();
    const at = scene.where(Number(find));
    point(at ? { id: Number(find), region: at.region } : null);
    if (!at) return;
    view.current.zoom = Math.max(view.current.zoom, 8);
    view.current.moveTo(at.x, at.y);
  };
  const key = (event: KeyboardEvent) => {
    const step = { ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60] }[event.key];
    if (step) view.current.moveBy(step[0] ?? 0, step[1] ?? 0);
    else if (event.key === "+" || event.key === "=") view.current.zoomAt(view.current.width / 2, view.current.height / 2, 1.4);
    else if (event.key === "-") view.current.zoomAt(view.current.width / 2, view.current.height / 2, 1 / 1.4);
    else if (event.key === "0") view.current.fit();
    else return;
    event.preventDefault();
  };
  return (
    <>
      <div class="row" style={{ padding: "var(--s2) var(--s3)" }}>
        <form class="row" onSubmit={go}>
          <label class="field">Find an entity<input class="input mono" inputMode="numeric" size={10} value={find} onInput={(event) => type(event.currentTarget.value)} /></label>
          <button type="submit" class="button">Find</button>
        </form>
        {world.dimensions > 2 && (
          <label class="field">View along<select class="input" value={along} onChange={(event) => keep({ along: event.currentTarget.value })}>
            {AXES.map(([axis, shows]) => <option key={axis} value={axis}>{axis}: {shows}</option>)}
          </select></label>
        )}
        <button type="button" class="button" onClick={() => view.current.fit()}>Show all</button>
        <span class="soft small" role="status">{who ? `${exact(who.id)}, in region ${who.region}` : find && !scene.where(Number(find)) ? "no entity has this number" : "click to identify an entity"}</span>
      </div>
      <p class="legend" style={{ padding: "0 var(--s3) var(--s2)" }}>
        {[...scene.byKind].sort(([a], [b]) => a - b).map(([kind, count]) => <span key={kind}>{kind === 0 ? "▪" : "✚"} {world.kinds?.[kind] ?? `kind ${kind}`} <b data-figure={`space.kind.${kind}`} data-raw={count}>{exact(count)}</b></span>)}
        <span>size of the world, in its units: {sides(world)}</span>
      </p>
      {world.dimensions > 2 && <p class="soft small" style={{ padding: "0 var(--s3) var(--s2)" }}>The map shows two of the world's three dimensions. Entities that differ only in {along} are drawn at the same place, so colours of regions may mix. Another axis may separate them.</p>}
      <div class="map">
        <canvas ref={canvas} tabIndex={0} role="img" aria-label={`Map of ${world.world}: ${scene.entities} entities in ${world.regions.length} regions. Arrow keys move it, plus and minus zoom, 0 shows all.`} onKeyDown={key} />
      </div>
    </>
  );
}

/** Draws the map in every frame while the page is visible. */
function usePainting(canvas: RefObject<HTMLCanvasElement | null>, view: View, scene: Scene, axes: [Axis, Axis], frames: (perSecond: number) => void): void {
  useEffect(() => {
    const element = canvas.current;
    const context = element?.getContext("2d", { alpha: false });
    if (!element || !context) return;
    const painter = new Painter(context);
    const sizes = new ResizeObserver(() => {
      const scale = Math.min(PIXELS_MAX, devicePixelRatio);
      element.width = view.width = Math.max(1, Math.round(element.clientWidth * scale));
      element.height = view.height = Math.max(1, Math.round(element.clientHeight * scale));
    });
    sizes.observe(element);
    let [drawn, since, next] = [0, performance.now(), 0];
    const draw = (now: number) => {
      next = requestAnimationFrame(draw);
      const dark = document.documentElement.dataset.theme === "dark";
      painter.paint(scene, view, performance.now(), (region) => hue(region, dark), word(colour("raised")), word(colour("text")), colour("strong"));
      drawScale(context, view, axes, colour("text"), colour("raised"), Math.min(PIXELS_MAX, devicePixelRatio));
      drawn += 1;
      if (now - since < 1000) return;
      element.dataset.scale = perUnit(view).join(" ");
      element.dataset.bar = label(bar(view));
      frames(Math.round((drawn * 1000) / (now - since)));
      [drawn, since] = [0, now];
    };
    next = requestAnimationFrame(draw);
    return () => {
      cancelAnimationFrame(next);
      sizes.disconnect();
    };
  }, []);
}

function axis(world: World, which: number): Axis {
  const low = world.low?.[which] ?? 0;
  return { name: "xyz"[which] ?? "", low, high: low + side(world, which) };
}

function sides(world: World): string {
  return (world.low ?? []).map((_, which) => label(side(world, which))).join(" × ");
}

function side(world: World, axis: number): number {
  const length = (world.high?.[axis] ?? 1) - (world.low?.[axis] ?? 0);
  return length > 0 && Number.isFinite(length) ? length : 1;
}
