// The newest records of a subscription, for display. The list keeps the last KEPT to 2 × KEPT lines. Without a filter,
// it keeps only the last RUN_KEPT records of each batch, but counts all records. Notices such as gaps are also lines.

import type { Batch, NoticeEvent, Subscription, SubscribeOptions } from "dunlin";
import { live } from "../../client.ts";
import { exact } from "../../quantity.ts";

const KEPT = 2000;
const RUN_KEPT = 100;
const PAYLOAD_KEPT_BYTES = 65_536;
const DRAW_MS = 100;

export interface Rec {
  kind: "record";
  n: number;
  topic: string;
  subject: string;
  partition: number;
  position: string;
  timeMs: number;
  eventMs: number | undefined;
  key: Uint8Array | undefined;
  headers: [string, Uint8Array][];
  payload: Uint8Array;
  bytes: number;
}

export interface Said {
  kind: "said";
  n: number;
  tone: "warn" | "bad";
  text: string;
}

export type Row = Rec | Said;

export class Tail {
  rows: Row[] = [];
  received = 0;
  kept = 0;
  gaps = 0;
  ended = false;
  open = false;
  private subscription: Subscription | undefined;
  private timer = 0;
  private n = 0;

  constructor(readonly pattern: string, options: SubscribeOptions, private filter: string, private draw: () => void) {
    this.subscription = live().subscribe(pattern, { ...options, name: "dashboard tail", onBatch: (batch) => this.take(batch), onEvent: (event) => this.hear(event) });
  }

  hold(held: boolean): void {
    if (held) this.subscription?.pause();
    else this.subscription?.resume();
  }

  only(filter: string): void {
    this.filter = filter.toLowerCase();
  }

  clear(): void {
    this.rows = [];
    this.soon();
  }

  close(): void {
    clearTimeout(this.timer);
    this.subscription?.unsubscribe();
    this.subscription = undefined;
  }

  private take(batch: Batch): void {
    this.received += batch.count;
    const skip = this.filter ? 0 : batch.count - RUN_KEPT;
    for (let at = 0; batch.next(); at += 1) {
      if (at < skip) continue;
      if (this.filter && !this.matches(batch)) continue;
      this.push(this.record(batch));
    }
    this.soon();
  }

  private matches(batch: Batch): boolean {
    return batch.subject().toLowerCase().includes(this.filter) || batch.text().toLowerCase().includes(this.filter);
  }

  private record(batch: Batch): Rec {
    this.kept += 1;
    return {
      kind: "record",
      n: this.n++,
      topic: batch.log.topic,
      subject: batch.subject(),
      partition: batch.log.partition,
      position: `${batch.epoch}-${batch.seq}`,
      timeMs: batch.appendTimeMs(),
      eventMs: batch.eventTimeMs(),
      key: batch.key()?.slice(),
      headers: batch.headers().map(([name, value]) => [name, value.slice()]),
      payload: batch.payload.slice(0, PAYLOAD_KEPT_BYTES),
      bytes: batch.payloadLength,
    };
  }

  private hear(event: NoticeEvent): void {
    if (event.type === "gap") this.gaps += 1;
    if (event.type === "subscribed") this.open = true;
    if (event.type === "ended") this.ended = true;
    const said = words(event);
    if (said) this.push({ kind: "said", n: this.n++, ...said });
    this.soon();
  }

  private push(row: Row): void {
    this.rows.push(row);
    // Removes half of the lines at once, because removing a line for each new record would copy the list each time.
    if (this.rows.length > 2 * KEPT) this.rows = this.rows.slice(-KEPT);
  }

  private soon(): void {
    if (this.timer) return;
    this.timer = window.setTimeout(() => {
      this.timer = 0;
      this.draw();
    }, DRAW_MS);
  }
}

/** The text of a notice, in one line; null for notices that are not displayed. */
export function words(event: NoticeEvent): { tone: "warn" | "bad"; text: string } | null {
  switch (event.type) {
    case "gap":
      return { tone: "bad", text: `GAP  ${exact(event.first)} … ${exact(event.last)} of ${event.topic}: ${exact(event.records)} records left the log before this tab read them` };
    case "lagging":
      return { tone: "warn", text: `LAGGING  this tab has still to read ${exact(event.behind)} of the ${exact(event.retained)} retained records of ${event.topic}` };
    case "epoch":
      return { tone: "warn", text: `EPOCH  ${event.topic} began a new epoch: this tab read epoch ${event.old} up to ${exact(event.lastSeen)}, and continues at ${event.newFirst.epoch}-${event.newFirst.seq}${event.knownThrough === undefined ? "; later records of the old epoch may be lost" : `; the old epoch ended at ${exact(event.knownThrough)}`}` };
    case "deleted":
      return { tone: "bad", text: `DELETED  ${event.topic} ended at ${event.last.epoch}-${event.last.seq}` };
    case "reconnected":
      return { tone: "warn", text: "RECONNECTED  missed records follow, or are reported as a gap" };
    case "ended":
      return { tone: "bad", text: `END  ${event.error.message}` };
    default:
      return null;
  }
}
