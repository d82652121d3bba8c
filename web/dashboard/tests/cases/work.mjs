import { figure } from "../browser.mjs";
import { equal, holds, metric, until } from "../checks.mjs";

export const promise = "the page shows tenants, workers and the reason why a task waits, as the scheduler reports them";

export async function run({ browser, nodes, node }) {
  const url = ["--url", `dunlin://${node.tcp}`];
  const worker = nodes.start("task", "worker", "--kind", "count", "--slots", "2", ...url, "--", "wc", "-c");
  for (const tenant of ["acme", "zeta"]) await nodes.dunlin("task", "submit", "count", "hello", "--tenant", tenant, "--wait", ...url);
  const waits = (await nodes.dunlin("task", "submit", "nobody-does-this", "x", "--tenant", "acme", ...url)).trim().split(/\s+/).at(-1);
  const page = await browser.open(`${node.url}/#/work`);
  await until("the figures are those of /metrics", async () => (await figure(page, "work.known")) === (await metric(node, "dunlin_tasks_known")) && (await figure(page, "work.workers")) === 1);
  for (const tenant of ["acme", "zeta"]) await page.getByRole("cell", { name: tenant, exact: true }).first().waitFor();
  await page.getByRole("tab", { name: /Workers/ }).click();
  await page.getByRole("cell", { name: "count", exact: true }).waitFor();
  await page.goto(`${node.url}/#/work/${waits}`);
  const why = await page.locator("[data-figure=why]").innerText();
  const said = (await nodes.dunlin("task", "why", waits, ...url)).trim();
  holds(why.length > 10 && said.includes(why.slice(0, 20)), `the page says ${JSON.stringify(why)}, the command ${JSON.stringify(said)}`);
  const { tasks } = await (await fetch(`${node.url}/v1/tasks?stage=completed`)).json();
  await page.goto(`${node.url}/#/work/${tasks[0].task}`);
  await page.locator(".notice.good[data-figure=why]").waitFor();
  equal(await page.getByLabel("Payload", { exact: true }).innerText(), "hello", "what it was given");
  equal((await page.getByLabel("Result", { exact: true }).innerText()).trim(), "5", "what came of it");
  await page.goto(`${node.url}/#/work/${waits}`);
  await page.getByRole("button", { name: "Cancel task" }).click();
  await page.getByText("cancelled", { exact: true }).first().waitFor();
  equal(page.complaints.join("\n"), "", "complaints");
  worker.stdin.destroy();
  await forecasts(browser, nodes);
}

async function forecasts(browser, nodes) {
  const command = `'${nodes.program}' task worker --kind count -- wc -c`;
  const own = await nodes.serve(["--workers", command, "--scale", "1..2", "--scale-season", "1m"]);
  const page = await browser.open(`${own.url}/#/work?tab=workers`);
  await page.locator("[data-figure='work.forecast']", { hasText: "of history" }).waitFor();
  equal(page.complaints.join("\n"), "", "complaints");
  await nodes.kill(own);
}
