// Types of topics in responses of GET /v1/topics.

import { ask } from "./ask.ts";
import type { Subscriber } from "./told.ts";

export interface TopicLine {
  name: string;
  pattern?: string;
  partitions?: number;
  durable?: boolean;
  reliable?: boolean;
  /** This and the following counts are null if a node that has a part of the count does not respond. */
  retained_records?: number | null;
  retained_bytes?: number | null;
  records?: number | null;
  owner?: Owner | null;
  state?: string | null;
  /** The reason why the node could not open a topic that is on disk; absent for other topics. */
  refused?: string;
}

export interface Owner {
  node: number;
  epoch: number;
  /** Whether the responding node is the owner. */
  here: boolean;
  alive: boolean;
  address?: string;
}

export interface TopicPage {
  topics: TopicLine[];
  more: boolean;
  /** The name after which the next page begins. */
  next?: string | null;
}

export interface TopicInfo {
  name: string;
  config: Record<string, unknown> & { pattern?: string };
  owner: Owner | null;
  /** This and the following fields are null if a node that has a part of the answer does not respond. */
  publishers: number | null;
  subscribers_total?: number | null;
  logs: TopicLog[] | null;
  subscribers: Subscriber[] | null;
  groups: { name: string; kind: string; members: number; waiting: number; claimed: number }[] | null;
}

export interface TopicLog {
  partition: number;
  epoch: number;
  first: string | null;
  last: string | null;
  retained_records: number;
  memory_bytes: number;
  disk_bytes: number | null;
  synced: string | null;
  last_append: string | null;
}

export interface Which {
  pattern?: string;
  contains?: string;
  state?: string;
  after?: string;
  limit?: number;
}

export function list(which: Which, signal?: AbortSignal): Promise<TopicPage> {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(which)) if (value) query.set(name, String(value));
  return ask<TopicPage>(`/v1/topics?${query}`, signal ? { signal } : {});
}

/** The path of a topic in the HTTP API. The name is encoded as one segment of the path. */
export function path(name: string, rest = ""): string {
  return `/v1/topics/${encodeURIComponent(name)}${rest}`;
}

export function ownerText(owner: Owner | null | undefined): string {
  return owner == null ? "–" : `node ${owner.node}`;
}

/** The last sequence number of a position such as 7-1042. */
export function seqOf(position: string | null | undefined): number {
  return position ? Number(position.slice(position.lastIndexOf("-") + 1)) : 0;
}
