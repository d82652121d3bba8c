// Types of a node's reports about the cluster's tasks: the report `work`, and the description of a single task.

export interface Tenant {
  name: string;
  weight: number;
  share: number;
  queued: number;
  ready: number;
  running: number;
  running_max: number | null;
  queued_max: number | null;
  dead: number;
  submitted: number;
  completed: number;
  failed: number;
  cpu_ms: number;
  cpu_per_s: number | null;
  completed_per_s: number | null;
}

export interface Queue {
  tenant: string;
  queue: string;
  kind: string;
  ready: number;
  oldest_ms: number;
  cost_us: number;
}

export interface Worker {
  worker: string;
  name: string;
  kinds: string[];
  held: number;
  credit: number;
  done: number;
  draining: boolean;
  left_ms: number;
}

export interface ScalingEvent {
  at_ms?: number | null;
  kind: string;
  trigger?: string;
  workers?: number;
  woken?: number;
  failed?: number;
  passed_ms?: number | null;
  detected_ms?: number | null;
  ready_ms?: number | null;
  low_ms?: number | null;
  cooled_ms?: number | null;
  decided_ms?: number | null;
  gone_ms?: number | null;
}

export interface Scaling {
  here: boolean;
  min: number;
  max: number;
  processes: number;
  ready: number;
  /** The number of workers in the warm pool. */
  warm: number;
  events: ScalingEvent[];
  /** The state of the forecast; null if no season is configured. */
  forecast: Forecast | null;
}

export interface Forecast {
  /** The number of workers that the forecast requires; null without enough history. */
  wanted: number | null;
  point_per_s: number | null;
  upper_per_s: number | null;
  /** The mean error as a share of the actual values; null before the first comparison. */
  error: number | null;
  used: boolean;
  lead_ms: number;
  known_ms: number;
  needed_ms: number;
}

export interface Work {
  at_ms: number;
  known: number;
  bytes: number;
  startable: number;
  held: number;
  credit: number;
  workers_up: number;
  oldest_ms: number;
  rates: Record<"submitted_per_s" | "started_per_s" | "completed_per_s" | "failed_per_s" | "dead_per_s", number | null> | null;
  jain: number | null;
  tenants: Tenant[];
  queues: Queue[];
  workers: Worker[];
  scaling: Scaling | null;
}

export interface Task {
  task: string;
  tenant: string;
  queue: string;
  kind: string;
  stage: string;
  priority: number;
  attempts: number;
  lost: number;
  submitted_ms: number;
  started_ms: number | null;
  deadline_ms: number | null;
  worker: string | null;
  progress: { permille: number; note: string | null } | null;
  labels: Record<string, string>;
  after: string[];
  /** The start of the payload; only in the response for a single task. */
  payload?: string;
  payload_bytes?: number;
  /** The result of the last attempt, or its error. */
  outcome: { bytes: string; failure: string | null; run_us: number; cpu_us: number } | null;
  why?: string;
}
