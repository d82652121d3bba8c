// The form that publishes a record, and the meaning of its acknowledgement.

import { useState } from "preact/hooks";
import { ask } from "../../node/ask.ts";
import { path, type TopicInfo } from "../../node/topics.ts";
import { Card } from "../../parts/Card.tsx";
import { CopyAsCli } from "../../parts/Copy.tsx";
import { Failed } from "../../parts/Empty.tsx";
import { command } from "../../shell.ts";

interface Answer {
  position: string;
  acknowledged: string;
  topic: string;
}

const MEANS: Record<string, string> = {
  memory: "the record is in the node's memory",
  written: "the record is written to the file",
  synced: "the record is synced to disk",
  quorum: "a majority of nodes has synced the record",
};

export function Publish({ topic }: { topic: TopicInfo }) {
  const pattern = topic.config.pattern ?? topic.name;
  const [subject, setSubject] = useState(beginning(pattern));
  const [key, setKey] = useState("");
  const [payload, setPayload] = useState("");
  const [answer, tell] = useState<Answer>();
  const [error, fail] = useState<Error>();
  const send = async (event: Event) => {
    event.preventDefault();
    try {
      const headers: Record<string, string> = { "content-type": /^\s*[[{]/.test(payload) ? "application/json" : "text/plain" };
      if (key) headers["dunlin-key"] = key;
      tell(await ask<Answer>(path(subject), { method: "POST", body: payload, headers }));
      fail(undefined);
    } catch (refused) {
      tell(undefined);
      fail(refused as Error);
    }
  };
  const cli = command("dunlin", "pub", subject, payload, ...(key ? ["--key", key] : []));
  return (
    <Card title="Publish a record" right={<CopyAsCli line={cli} />}>
      <form onSubmit={send} style={{ display: "grid", gap: "var(--s3)" }}>
        <div class="row">
          <label class="field" style={{ flex: "2 1 220px" }}>Subject, matching <code>{pattern}</code><input class="input mono" required pattern=".*[^.]" title={`A complete subject that matches ${pattern}`} value={subject} onInput={(event) => setSubject(event.currentTarget.value)} /></label>
          <label class="field" style={{ flex: "1 1 120px" }}>Key<input class="input mono" value={key} onInput={(event) => setKey(event.currentTarget.value)} /></label>
        </div>
        <label class="field">Payload<textarea class="input" rows={6} spellcheck={false} value={payload} onInput={(event) => setPayload(event.currentTarget.value)} /></label>
        <Failed error={error} />
        {answer && <p class="notice good" role="status">Published as {answer.position} of {answer.topic}. Acknowledged “{answer.acknowledged}”: {MEANS[answer.acknowledged] ?? ""}.</p>}
        <div class="row"><button type="submit" class="button first">Publish</button></div>
      </form>
    </Card>
  );
}

/** The common start of all subjects that a pattern matches: the pattern up to its first wildcard. */
function beginning(pattern: string): string {
  return pattern.replace(/[*>].*$/, "");
}
