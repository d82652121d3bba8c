// The login form, which appears when the node requires credentials. The dashboard keeps the credentials only for this
// tab, and never puts them into a URL.

import { useState } from "preact/hooks";
import { logIn } from "../node/connection.ts";
import { useConnection } from "../node/hooks.ts";
import { Card } from "../parts/Card.tsx";

export function Login() {
  const { why } = useConnection();
  const [user, setUser] = useState("");
  const [secret, setSecret] = useState("");
  const [byToken, choose] = useState(true);
  const send = (event: Event) => {
    event.preventDefault();
    if (secret === "") return;
    logIn(byToken ? { token: secret.trim() } : { user, password: secret });
  };
  const text = (set: (value: string) => void) => (event: Event) => set((event.currentTarget as HTMLInputElement).value);
  return (
    <>
      <h1>Log in</h1>
      <Card title="This node requires a login" right={<button type="button" class="button bare" onClick={() => choose(!byToken)}>{byToken ? "Use a password" : "Use a token"}</button>}>
        {why && <p class="notice bad" role="alert">The node refused these credentials: {why}</p>}
        <form class="row" onSubmit={send} aria-label="Log in" style={{ margin: "var(--s3) 0" }}>
          {!byToken && <label class="field">User<input class="input" required autocomplete="username" spellcheck={false} value={user} onInput={text(setUser)} /></label>}
          <label class="field" style={{ flex: "1 1 260px" }}>
            {byToken ? <>Token, from <code>dunlin user token NAME</code></> : "Password"}
            <input class="input" type="password" autocomplete="current-password" required value={secret} onInput={text(setSecret)} />
          </label>
          <button type="submit" class="button first">Log in</button>
        </form>
        <p class="soft small">The page keeps the credentials in this tab until the tab is closed. The node's metrics need the permission <code>surveys</code>; payloads need <code>subscribe</code> for their topic.</p>
      </Card>
    </>
  );
}
