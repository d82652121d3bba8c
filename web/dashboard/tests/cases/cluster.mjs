import { figure } from "../browser.mjs";
import { equal, metric, until } from "../checks.mjs";

export const promise = "the page shows that one of three nodes was killed and came back; if its own node is killed, it continues through another";

export async function run({ browser, nodes }) {
  const three = await nodes.cluster();
  const page = await browser.open(`${three[0].url}/#/cluster`);
  await until("three are there", async () => (await figure(page, "cluster.alive")) === 3);
  await page.locator('[data-event="began"]').waitFor();
  await until("the page knows who leads", async () => {
    const leader = three[(await figure(page, "cluster.leader")) - 1];
    return leader && (await metric(leader, "dunlin_raft_leader")) === 1;
  });
  await until("the page knows who leads the tasks", async () => {
    const leader = three[(await figure(page, "cluster.tasks.0")) - 1];
    return leader && (await metric(leader, "dunlin_tasks_leader")) === 1;
  });
  await until("the term is that of /metrics", async () => (await figure(page, "cluster.term")) === (await metric(three[0], "dunlin_raft_term")));

  await nodes.kill(three[2]);
  await page.locator('[data-node="3"][data-state="down"]').waitFor();
  await page.locator('[data-event="gone"]').first().waitFor();
  three[2] = await nodes.again(three[2]);
  await page.locator('[data-node="3"][data-state="up"]').waitFor();
  await page.locator('[data-event="back"]').first().waitFor();

  // One request may select another node before other requests to the killed node have failed. The late failure must not
  // remove the banner.
  await page.route(`${three[0].url}/v1/node/cluster`, async (route) => {
    await new Promise((later) => setTimeout(later, 1_000));
    await route.abort("connectionrefused").catch(() => undefined);
  });
  await nodes.kill(three[0]);
  await page.locator("[data-said=through]").waitFor();
  await page.waitForTimeout(2_000);
  equal(await page.locator("[data-said=through]").count(), 1, "the page shows that it goes through another node");
  equal(await page.locator("[data-said=restarted]").count(), 0, "no node was started again: another one answers");
  await page.unroute(`${three[0].url}/v1/node/cluster`);
  await page.locator('[data-node="1"][data-state="down"]').waitFor();
  three[0] = await nodes.again(three[0]);
  await page.locator('[data-node="1"][data-state="up"]').waitFor();
  await until("the page is at home again", async () => (await page.locator("[data-said=through]").count()) === 0);
  equal(page.complaints.join("\n"), "", "complaints");
  for (const node of three) await nodes.kill(node);
}
