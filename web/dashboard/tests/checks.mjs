// Assertions for the cases. Time limits are long, so that a slow machine under load fails no case.

export const SLOW_MS = 30_000;

/** Waits until `holds` returns a true value, and returns that value. */
export async function until(what, holds, within = SLOW_MS) {
  const deadline = Date.now() + within;
  let why = "";
  for (;;) {
    try {
      const found = await holds();
      if (found) return found;
    } catch (error) {
      why = `: ${error.message.split("\n")[0]}`;
    }
    if (Date.now() > deadline) throw new Error(`did not come within ${within / 1000} s: ${what}${why}`);
    await new Promise((go) => setTimeout(go, 100));
  }
}

export function equal(found, wanted, what) {
  if (found !== wanted) throw new Error(`${what}: found ${JSON.stringify(found)}, wanted ${JSON.stringify(wanted)}`);
}

export function holds(condition, what) {
  if (!condition) throw new Error(what);
}

/** Reads a node's metric: the sum of the series that have these labels. */
export async function metric(node, name, labels = {}) {
  const text = await (await fetch(`${node.url}/metrics`)).text();
  const wanted = Object.entries(labels).map(([label, value]) => `${label}="${value}"`);
  const lines = text.split("\n").filter((one) => one.startsWith(`${name} `) || one.startsWith(`${name}{`));
  const found = lines.filter((one) => wanted.every((label) => one.includes(label)));
  if (found.length === 0) throw new Error(`/metrics has no ${name}`);
  return found.reduce((all, one) => all + Number(one.slice(one.lastIndexOf(" "))), 0);
}
