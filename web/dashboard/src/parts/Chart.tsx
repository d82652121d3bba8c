// A line chart, drawn by uPlot on a canvas. A legend shows the newest values as text, which screen readers can read.

import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { colour, useTheme } from "../theme.ts";

export interface Line {
  label: string;
  /** The name of a colour in styles.css, without `--`. */
  colour: string;
  values: (number | null)[];
  dashed?: boolean;
  /** Whether the area between the line and zero is filled. */
  area?: boolean;
  /** The value in the legend, if it is not the newest value. */
  said?: number;
}

/** The allowed distances between grid lines: SECONDS for times, POWERS for bytes, WHOLE for whole numbers. */
const SECONDS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600];
const POWERS = Array.from({ length: 50 }, (_, power) => 2 ** power);
const WHOLE = Array.from({ length: 15 }, (_, power) => [1, 2, 5].map((one) => one * 10 ** power)).flat();

interface Props {
  label: string;
  /** The x values: seconds since 1970 by default, any numbers if `time` is false. */
  x: number[];
  lines: Line[];
  show: (value: number) => string;
  height?: number;
  time?: boolean;
  legend?: boolean;
  /** Whether lines between points are steps instead of slopes. */
  stepped?: boolean;
  /** Restricts grid lines to whole numbers, or to powers of two for bytes. Thus no two lines have the same label. */
  ticks?: "whole" | "bytes" | undefined;
}

export function Chart({ label, x, lines, show, height = 150, time = true, legend = true, stepped = false, ticks }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const [, drawn] = useTheme();
  const shape = lines.map((line) => `${line.label}|${line.colour}|${line.dashed}|${line.area}`).join(";");
  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const made = new uPlot(options({ lines, show, height, time, stepped, ticks, width: element.clientWidth }), data(x, lines), element);
    plot.current = made;
    const sizes = new ResizeObserver(() => made.setSize({ width: element.clientWidth, height }));
    sizes.observe(element);
    return () => {
      sizes.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [shape, height, time, stepped, ticks, drawn]);
  useEffect(() => plot.current?.setData(data(x, lines)), [x, lines]);
  const said = lines.map((line) => `${line.label} ${show(newest(line) ?? 0)}`).join(", ");
  return (
    <figure>
      <div class="chart" ref={box} role="img" aria-label={`${label}: ${said}`} />
      {legend && <Legend lines={lines} show={show} />}
    </figure>
  );
}

function Legend({ lines, show }: { lines: Line[]; show: (value: number) => string }) {
  return (
    <figcaption class="legend" aria-hidden="true">
      {lines.map((line) => {
        const value = newest(line);
        return (
          <span key={line.label}>
            <i style={{ background: `var(--${line.colour})` }} />
            {line.label} <b>{value == null ? "–" : show(value)}</b>
          </span>
        );
      })}
    </figcaption>
  );
}

function options({ lines, show, height, time, stepped, ticks, width }: Required<Pick<Props, "lines" | "show" | "height" | "time" | "stepped">> & Pick<Props, "ticks"> & { width: number }): uPlot.Options {
  const font = "11px system-ui, sans-serif";
  const axis = { stroke: colour("soft"), font, ticks: { show: false }, grid: { stroke: colour("line"), width: 1 } };
  const paths = stepped ? uPlot.paths.stepped?.({ align: 1 }) : undefined;
  return {
    width: Math.max(80, width),
    height,
    legend: { show: false },
    cursor: { y: false, points: { size: 5 } },
    // The label of the last time is centred on its grid line, so it needs space on the right.
    padding: [8, 28, 0, 0],
    scales: { x: { time }, y: { range: (_, low, high) => [Math.min(0, low), high > 0 && !(ticks && high < 1) ? high * 1.08 : 1] } },
    axes: [
      { ...axis, grid: { show: false }, size: 24, space: 70, ...(time ? { incrs: SECONDS, values: (_: uPlot, at: number[]) => at.map(clock) } : {}) },
      { ...axis, size: 62, space: 32, ...(ticks ? { incrs: ticks === "bytes" ? POWERS : WHOLE } : {}), values: (_, at) => at.map(show) },
    ],
    series: [
      {},
      ...lines.map((line): uPlot.Series => ({
        label: line.label,
        stroke: colour(line.colour),
        width: 1.5,
        points: { show: false },
        ...(line.dashed ? { dash: [5, 4] } : {}),
        ...(line.area ? { fill: `${colour(line.colour)}22` } : {}),
        ...(paths ? { paths } : {}),
      })),
    ],
  };
}

function newest(line: Line): number | null {
  return line.said ?? last(line.values);
}

function clock(seconds: number): string {
  return new Date(seconds * 1000).toLocaleTimeString("en-GB");
}

function data(x: number[], lines: Line[]): uPlot.AlignedData {
  return [x, ...lines.map((line) => line.values)] as uPlot.AlignedData;
}

function last(values: (number | null)[]): number | null {
  for (let at = values.length - 1; at >= 0; at -= 1) {
    const value = values[at];
    if (value != null) return value;
  }
  return null;
}
