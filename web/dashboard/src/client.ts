// The page's single connection to its node for all live data. The first page that needs it opens the
// connection, and a login reopens it.

import { connect, type Client } from "dunlin";
import { connection, credentials, listen, type Credentials } from "./node/connection.ts";
import { HOME } from "./node/places.ts";

let made: { client: Client; who: Credentials | null; base: string } | null = null;

export function live(): Client {
  const who = credentials();
  const base = connection().through;
  // A client ends for good if its node belongs to another cluster than before, or speaks another version.
  if (made && made.client.state !== "closed" && made.who === who && made.base === base) return made.client;
  made?.client.close();
  const client = connect(base || HOME, { name: "dashboard", ...who });
  made = { client, who, base };
  return client;
}

listen(() => {
  if (connection().reach === "login") {
    made?.client.close();
    made = null;
  }
});
