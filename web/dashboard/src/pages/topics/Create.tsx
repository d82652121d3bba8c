// The form that creates a topic. For empty fields, the node uses its defaults.

import { useState } from "preact/hooks";
import { ask } from "../../node/ask.ts";
import { path } from "../../node/topics.ts";
import { CopyAsCli } from "../../parts/Copy.tsx";
import { Dialog } from "../../parts/Dialog.tsx";
import { Failed } from "../../parts/Empty.tsx";
import { link } from "../../route.ts";
import { command } from "../../shell.ts";

interface Wanted {
  name: string;
  pattern: string;
  partitions: string;
  mebibytes: string;
  age: string;
  durable: boolean;
}

export function Create({ close, suggested }: { close: () => void; suggested: string }) {
  const [wanted, set] = useState<Wanted>({ name: suggested, pattern: "", partitions: "", mebibytes: "", age: "", durable: false });
  const [error, fail] = useState<Error>();
  const change = (field: keyof Wanted) => (event: Event) => {
    const input = event.currentTarget as HTMLInputElement;
    set({ ...wanted, [field]: input.type === "checkbox" ? input.checked : input.value });
  };
  const send = async (event: Event) => {
    event.preventDefault();
    try {
      await ask(path(wanted.name), { method: "PUT", body: JSON.stringify(settings(wanted)) });
      close();
      location.hash = link("topics", wanted.name);
    } catch (refused) {
      fail(refused as Error);
    }
  };
  return (
    <Dialog title="Create a topic" close={close}>
      <form onSubmit={send}>
        <h2>Create a topic</h2>
        <label class="field">Name<input class="input mono" required autofocus value={wanted.name} onInput={change("name")} /></label>
        <label class="field">Subjects of the topic (default: its name)<input class="input mono" placeholder="orders.>" value={wanted.pattern} onInput={change("pattern")} /></label>
        <div class="thirds">
          <label class="field">Partitions<input class="input" type="number" min={1} max={1024} placeholder="1" value={wanted.partitions} onInput={change("partitions")} /></label>
          <label class="field">Retention, MiB<input class="input" type="number" min={1} placeholder="default" value={wanted.mebibytes} onInput={change("mebibytes")} /></label>
          <label class="field">Retention, age<input class="input" placeholder="10m" value={wanted.age} onInput={change("age")} /></label>
        </div>
        <label><input type="checkbox" checked={wanted.durable} onChange={change("durable")} /> Store on disk (durable)</label>
        <Failed error={error} />
        <div class="row">
          <button type="submit" class="button first">Create</button>
          <CopyAsCli line={cli(wanted)} />
          <button type="button" class="button bare" onClick={close}>Cancel</button>
        </div>
      </form>
    </Dialog>
  );
}

function settings(wanted: Wanted): Record<string, unknown> {
  const retention = { ...(wanted.mebibytes && { bytes: Number(wanted.mebibytes) * 2 ** 20 }), ...(wanted.age && { age: wanted.age }) };
  return {
    ...(wanted.pattern && { pattern: wanted.pattern }),
    ...(wanted.partitions && { partitions: Number(wanted.partitions) }),
    ...(Object.keys(retention).length > 0 && { retention }),
    ...(wanted.durable && { durable: {} }),
  };
}

function cli(wanted: Wanted): string {
  const words = ["dunlin", "topics", "create", wanted.name];
  if (wanted.pattern) words.push("--pattern", wanted.pattern);
  if (wanted.partitions) words.push("--partitions", wanted.partitions);
  if (wanted.mebibytes) words.push("--retention-bytes", `${wanted.mebibytes}MiB`);
  if (wanted.age) words.push("--retention-age", wanted.age);
  if (wanted.durable) words.push("--durable");
  return command(...words);
}
