import { join } from "node:path";
import { shown } from "../browser.mjs";
import { equal, holds } from "../checks.mjs";

export const promise = "the page asks an unknown user for a token, keeps it in this tab only, and asks again after the token was revoked";

export async function run({ browser, nodes }) {
  const users = join(nodes.dir, "users.toml");
  await nodes.dunlin("user", "add", "ana", "--users-file", users, "--surveys", "--subscribe", ">", "--publish", ">", "--create", ">", "--no-password");
  const token = (await nodes.dunlin("user", "token", "ana", "--users-file", users)).match(/dunlin_\S+/)[0];
  const node = await nodes.serve(["--auth-users-file", users]);
  const page = await browser.open(`${node.url}/#/overview`);
  const field = page.getByLabel(/^Token/);
  await field.fill("dunlin_wrong");
  await page.getByRole("button", { name: "Log in" }).click();
  await page.getByText(/The node refused these credentials/).waitFor();
  await field.fill(token);
  await page.getByRole("button", { name: "Log in" }).click();
  await shown(page, '[data-figure="records"]');
  holds(!page.url().includes(token), "the address does not contain the token");
  equal(await page.evaluate(() => JSON.stringify({ ...localStorage }).includes("dunlin_")), false, "the token is in localStorage");
  await page.reload();
  await shown(page, '[data-figure="records"]');

  await nodes.dunlin("user", "remove", "ana", "--users-file", users);
  node.child.kill("SIGHUP");
  await page.getByText(/The node refused these credentials/).waitFor();
  equal(await page.evaluate(() => sessionStorage.length), 0, "entries kept after the token was revoked");
  equal(page.complaints.join("\n"), "", "complaints");
  await nodes.kill(node);
}
