import { figure } from "../browser.mjs";
import { equal, metric, until } from "../checks.mjs";

export const promise = "a killed node of three is said to be away and then to be back; with its own node killed the page goes on through another";

export async function run({ browser, nodes }) {
  const three = await nodes.cluster();
  const page = await browser.open(`${three[0].url}/#/cluster`);
  await until("three are there", async () => (await figure(page, "cluster.alive")) === 3);
  await until("the page knows who leads", async () => {
    const leader = three[(await figure(page, "cluster.leader")) - 1];
    return leader && (await metric(leader, "dunlin_raft_leader")) === 1;
  });
  equal(await figure(page, "cluster.term"), await metric(three[0], "dunlin_raft_term"), "the term");

  await nodes.kill(three[2]);
  await page.locator('[data-node="3"][data-state="away"]').waitFor();
  await page.locator('[data-event="gone"]').first().waitFor();
  three[2] = await nodes.again(three[2]);
  await page.locator('[data-node="3"][data-state="there"]').waitFor();
  await page.locator('[data-event="back"]').first().waitFor();

  await nodes.kill(three[0]);
  await page.locator("[data-said=through]").waitFor();
  await page.locator('[data-node="1"][data-state="away"]').waitFor();
  three[0] = await nodes.again(three[0]);
  await page.locator('[data-node="1"][data-state="there"]').waitFor();
  await until("the page is at home again", async () => (await page.locator("[data-said=through]").count()) === 0);
  equal(page.complaints.join("\n"), "", "complaints");
  for (const node of three) await nodes.kill(node);
}
