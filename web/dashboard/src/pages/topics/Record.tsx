// The fields of one record.

import { Copy, CopyAsCli } from "../../parts/Copy.tsx";
import { bytes, exact } from "../../quantity.ts";
import { command } from "../../shell.ts";
import { preview, shown, utf8 } from "../../text.ts";
import type { Rec } from "./tail.ts";

export function Record({ record, close }: { record: Rec; close: () => void }) {
  const { form, text } = shown(record.payload);
  const from = before(record.position);
  return (
    <section class="card" style={{ margin: "var(--s3)" }} aria-label={`Record ${record.position}`}>
      <header>
        <h2 class="mono">{record.position}</h2>
        <span class="pill">{form}</span>
        <span class="soft small">{bytes(record.bytes)}</span>
        <span class="right">
          <Copy text={text} label="Copy payload" />
          <CopyAsCli line={command("dunlin", "sub", record.subject, "--from", from, "--count", "1")} />
          <button type="button" class="button bare" onClick={close}>Close</button>
        </span>
      </header>
      <div class="body">
        <dl class="facts small">
          <dt>Subject</dt><dd class="mono">{record.subject}</dd>
          <dt>Topic</dt><dd class="mono">{record.topic}, partition {record.partition}</dd>
          <dt>Appended</dt><dd>{new Date(record.timeMs).toISOString()}</dd>
          {record.eventMs !== undefined && <><dt>Event time</dt><dd>{new Date(record.eventMs).toISOString()}</dd></>}
          {record.key && <><dt>Key</dt><dd class="mono">{preview(record.key)}</dd></>}
          {record.headers.map(([name, value]) => [<dt key={name} class="mono">{name}</dt>, <dd key={`${name} value`} class="mono">{utf8(value) ?? preview(value)}</dd>])}
        </dl>
        <pre class="payload" tabIndex={0} aria-label="Payload">{text || "empty"}</pre>
        {record.bytes > record.payload.length && <p class="soft small">Only the first {exact(record.payload.length)} bytes are shown.</p>}
      </div>
    </section>
  );
}

/** The position before a record's position: a subscriber that starts after it receives the record first. */
function before(position: string): string {
  const [epoch = "0", seq = "1"] = position.split("-");
  return `${epoch}-${Math.max(0, Number(seq) - 1)}`;
}
