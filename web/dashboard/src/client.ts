// The dashboard's only client for live data. It is created when a page first needs it, and again after a login or when
// the dashboard changes to another node.

import { connect, type Client } from "dunlin";
import { connection, credentials, listen, type Credentials } from "./node/connection.ts";
import { HOME } from "./node/places.ts";

let made: { client: Client; who: Credentials | null; base: string } | null = null;

export function live(): Client {
  const who = credentials();
  const base = connection().through;
  // A client does not reconnect if the node at its address belongs to another cluster, or has another protocol version.
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
