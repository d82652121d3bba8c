// Parses the response of /metrics, which is in Prometheus' text format. Invalid lines are skipped.

export interface Series {
  labels: Record<string, string>;
  value: number;
}

export type Metrics = Map<string, Series[]>;

const LINE = /^([A-Za-z_:][\w:]*)(\{.*\})?\s+(\S+)/;
const LABEL = /([A-Za-z_]\w*)="((?:[^"\\]|\\.)*)"/g;

export function parse(text: string): Metrics {
  const all: Metrics = new Map();
  for (const line of text.split("\n")) {
    if (line === "" || line[0] === "#") continue;
    const found = LINE.exec(line);
    if (!found) continue;
    const [, name = "", labels, value] = found;
    const series = { labels: labels ? parseLabels(labels) : {}, value: Number(value) };
    const known = all.get(name);
    if (known) known.push(series);
    else all.set(name, [series]);
  }
  return all;
}

/** The sum of a metric's series with these labels; undefined if no series has them. */
export function sum(metrics: Metrics, name: string, labels: Record<string, string> = {}): number | undefined {
  const wanted = Object.entries(labels);
  const found = metrics.get(name)?.filter((one) => wanted.every(([label, value]) => one.labels[label] === value));
  return found?.length ? found.reduce((all, one) => all + one.value, 0) : undefined;
}

function parseLabels(text: string): Record<string, string> {
  const labels: Record<string, string> = {};
  for (const [, name = "", value = ""] of text.matchAll(LABEL)) {
    labels[name] = value.replace(/\\(.)/g, (_, letter) => (letter === "n" ? "\n" : letter));
  }
  return labels;
}
