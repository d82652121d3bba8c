import { figure } from "../browser.mjs";
import { equal, holds, until } from "../checks.mjs";

export const promise = "the page draws the node's forecast of tasks beside the tasks that arrived";

/** The shortest allowed season. A forecast needs reports of two seasons. */
const SEASON_MS = 60_000;
const EVERY_MS = 250;

/** Starts the node and its tasks before the first case, so that the two seasons pass while other cases run. */
export async function begin({ nodes }) {
  const command = `'${nodes.program}' task worker --kind count -- wc -c`;
  const node = await nodes.serve(["--workers", command, "--scale", "1..2", "--scale-season", `${SEASON_MS / 1000}s`]);
  const body = JSON.stringify({ kind: "count", payload: "hello" });
  const submit = () => fetch(`${node.url}/v1/tasks`, { method: "POST", headers: { "content-type": "application/json" }, body }).catch(() => undefined);
  return { node, submitting: setInterval(submit, EVERY_MS) };
}

export async function run({ browser, nodes }, { node, submitting }) {
  try {
    const page = await browser.open(`${node.url}/#/work?tab=workers`);
    const outlook = page.locator("[data-figure='work.forecast']");
    await outlook.waitFor();
    // With too little history, the page shows the missing time instead of a forecast.
    await until("there is a forecast", async () => (await outlook.getAttribute("data-raw")) !== null, 3 * SEASON_MS);
    await until("the page has what the node says", async () => {
      const { scaling } = await (await fetch(`${node.url}/v1/node/work`)).json();
      const { wanted, upper_per_s } = scaling.forecast;
      holds(upper_per_s > 0, `${upper_per_s} tasks a second to come`);
      const chart = await page.locator(".chart[aria-label^='Arrivals']").getAttribute("aria-label");
      return (await figure(page, "work.forecast")) === wanted && /by the forecast 0*[1-9]|by the forecast 0\.0*[1-9]/.test(chart);
    });
    await until("its line is drawn", async () => (await drawn(page)) > 20);
    equal(page.complaints.join("\n"), "", "complaints");
  } finally {
    clearInterval(submitting);
    await nodes.kill(node);
  }
}

/** Counts the pixels that have the forecast's colour in the chart Arrivals. */
function drawn(page) {
  return page.locator(".chart[aria-label^='Arrivals'] canvas").evaluate((canvas) => {
    const wanted = getComputedStyle(document.documentElement).getPropertyValue("--c4").trim();
    const [red, green, blue] = [1, 3, 5].map((at) => Number.parseInt(wanted.slice(at, at + 2), 16));
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    let found = 0;
    for (let at = 0; at < data.length; at += 4) {
      const far = Math.abs(data[at] - red) + Math.abs(data[at + 1] - green) + Math.abs(data[at + 2] - blue);
      if (data[at + 3] > 200 && far < 40) found += 1;
    }
    return found;
  });
}
