// The values of the last reports about tasks, at most KEPT, for charts. The history begins when the page Work is
// opened.

import type { Work } from "../../node/told_work.ts";

const KEPT = 300;

export interface WorkPast {
  at: number[];
  waiting: (number | null)[];
  held: (number | null)[];
  done: (number | null)[];
  workers: (number | null)[];
  ready: (number | null)[];
  wanted: (number | null)[];
  arrived: (number | null)[];
  expected: (number | null)[];
  jain: (number | null)[];
}

let past: WorkPast = { at: [], waiting: [], held: [], done: [], workers: [], ready: [], wanted: [], arrived: [], expected: [], jain: [] };
let last = 0;

export function rememberWork(told: Work): WorkPast {
  if (told.at_ms <= last) return past;
  last = told.at_ms;
  past = {
    at: kept(past.at, told.at_ms / 1000),
    waiting: kept(past.waiting, told.startable ?? null),
    held: kept(past.held, told.held ?? null),
    done: kept(past.done, told.rates?.completed_per_s ?? null),
    workers: kept(past.workers, told.workers_up ?? null),
    ready: kept(past.ready, told.scaling?.ready ?? null),
    wanted: kept(past.wanted, told.scaling?.forecast?.wanted ?? null),
    arrived: kept(past.arrived, told.rates?.submitted_per_s ?? null),
    expected: kept(past.expected, told.scaling?.forecast?.upper_per_s ?? null),
    jain: kept(past.jain, told.jain),
  };
  return past;
}

export function workPast(): WorkPast {
  return past;
}

function kept<T>(list: T[], value: T): T[] {
  return [...list.slice(-(KEPT - 1)), value];
}
