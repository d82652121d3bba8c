// Types of a node's reports: the values in topic `$node` and the responses of GET /v1/node/*. Nodes of other versions
// may omit any field except `at_ms`. Pages show "–" for absent fields.

export interface Stats {
  at_ms: number;
  node: string;
  id: number;
  name: string;
  version: string;
  uptime_s: number;
  /** The rates; null until the node has two measurements. */
  rates: Record<"records_per_s" | "bytes_per_s" | "gaps_per_s" | "lagging_per_s" | "http_per_s", number | null> | null;
  totals: { records: number; bytes: number; gaps: number; gap_records: number; lagging: number };
  topics: number;
  subscriptions: number;
  listeners: { protocol: string; address: string; open: number; accepted: number }[];
  connections: { open: number; limit: number; refused: number };
  memory: { used_bytes: number; limit_bytes: number };
  process: Record<"rss_bytes" | "cpu_percent" | "threads" | "open_files", number | null>;
  slowest: Subscriber[];
  recent: Departure[];
  missing: string[];
  history?: { step_ms: number; records: number[]; bytes: number[] };
}

export interface Subscriber {
  name: string;
  topic?: string;
  protocol: string;
  partition: number;
  position: string;
  lag: number;
  missed: number;
  lagging_at: string | null;
  missed_at: string | null;
  registered: boolean;
  why?: string;
}

export interface Departure {
  protocol: string;
  outcome: string;
  why: string;
  name: string;
  peer: string | null;
  lag: number | null;
  times: number;
  first: string;
  last: string;
}

export interface BusyTopic {
  name: string;
  records_per_s: number | null;
  bytes_per_s: number | null;
  /** This and the following counts are null if a node that has a part of the count does not respond. */
  records: number | null;
  retained_bytes: number | null;
  subscribers: number | null;
  gaps: number | null;
}

export interface Busiest {
  at_ms: number;
  total: number;
  topics: BusyTopic[];
}

export interface ClusterNode {
  node: number;
  address: string | null;
  release: string;
  listeners: { tcp?: string; http?: string; nats?: string; grpc?: string };
  alive: boolean;
  removed: string | null;
  topics_owned: number;
}

export interface ClusterEvent {
  at_ms: number;
  event: string;
  node?: number;
  term?: number;
  topic?: string;
  from?: number | null;
  to?: number | null;
  /** In the event `began`: the number of nodes that were up when this node started. */
  there?: number;
  of?: number;
  leader?: number | null;
}

/** One of the raft groups that share the tasks. */
export interface TasksShard {
  shard: number;
  leader: number | null;
  term: number | null;
}

export interface Cluster {
  at_ms: number;
  id: number;
  /** The id of the cluster; null for a node without a cluster. */
  cluster: string | null;
  leader: number | null;
  term: number | null;
  last: number | null;
  applied: number | null;
  snapshot: number | null;
  revision: number | null;
  voters: number[];
  learners: number[];
  /** The shards of tasks; empty before the node takes part in them, absent for nodes of older versions. */
  tasks_shards?: TasksShard[];
  missing: string | null;
  nodes: ClusterNode[];
  events: ClusterEvent[];
}

export interface World {
  world: string;
  dimensions: number;
  /** The lowest coordinates of the world; null if no program has described the world. */
  low: number[] | null;
  high: number[] | null;
  /** The names of the kinds of entities, if the world's program names them. */
  kinds?: Record<string, string> | null;
  held: boolean;
  processes: { process: number; address: string; url: string }[];
  /** The regions. Fields that no process of the world has reported are absent. */
  regions: { region: number; process?: number | null; epoch?: number; standby?: number | null; began?: boolean }[];
}

export interface Spaces {
  at_ms: number;
  worlds: World[];
}
