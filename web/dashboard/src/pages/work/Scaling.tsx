// The autoscaler: the number of workers, the number that the forecast requires, and the decisions with their durations.

import type { Forecast, ScalingEvent, Work } from "../../node/told_work.ts";
import { Card } from "../../parts/Card.tsx";
import { Chart } from "../../parts/Chart.tsx";
import { Empty } from "../../parts/Empty.tsx";
import { Table } from "../../parts/Table.tsx";
import { count, exact, moment, percent, rate, span } from "../../quantity.ts";
import { workPast } from "./past.ts";

export function Scaling({ told }: { told: Work }) {
  const past = workPast();
  const { scaling } = told;
  const wanted = scaling?.forecast ? [{ label: "required by the forecast", colour: "c4", values: past.wanted, dashed: true }] : [];
  return (
    <div class="grid">
      <Card title="Workers and waiting tasks" right={scaling && <span class="soft small">{exact(scaling.ready)} of {exact(scaling.processes)} processes ready{scaling.warm ? `, ${exact(scaling.warm)} in the warm pool` : ""}; limits: {exact(scaling.min)} to {exact(scaling.max)}</span>}>
        <Chart label="Workers" x={past.at} show={count} ticks="whole" stepped height={120} lines={[{ label: "workers", colour: "c1", values: past.workers, area: true }, ...wanted]} />
        <Chart label="Tasks" x={past.at} show={count} ticks="whole" height={110} lines={[{ label: "startable", colour: "c2", values: past.waiting }, { label: "running", colour: "c3", values: past.held }]} />
        {scaling?.forecast && <Chart label="Arrivals" x={past.at} show={rate} height={110} lines={[{ label: "arrived", colour: "c1", values: past.arrived }, { label: "maximum by the forecast", colour: "c4", values: past.expected, dashed: true }]} />}
        {scaling && <Outlook forecast={scaling.forecast} />}
      </Card>
      <Card title="Decisions" flush>
        {scaling
          ? <Decisions events={scaling.events ?? []} />
          : <Empty title="This node starts no workers" run={["dunlin dev --workers 'dunlin task worker --kind count -- wc -c' --scale 1..8"]}>With a command for workers, the node runs as many workers as the waiting tasks need.</Empty>}
      </Card>
    </div>
  );
}

/** The accuracy of the forecast, or the reason why there is none. */
function Outlook({ forecast }: { forecast: Forecast | null }) {
  if (!forecast) return <p class="soft small">There is no forecast, because the node does not know the period of the load (<code>--scale-season 1h</code>).</p>;
  if (forecast.wanted == null) return <p class="soft small" data-figure="work.forecast">The forecast needs {span(forecast.needed_ms / 1000)} of history and has {span(forecast.known_ms / 1000)}.</p>;
  const error = forecast.error == null ? "No forecast could be checked yet" : `Forecasts were wrong by ${percent(forecast.error)} on average`;
  return (
    <p class="soft small" data-figure="work.forecast" data-raw={forecast.wanted}>
      Within {span(forecast.lead_ms / 1000)}, the forecast expects tasks to arrive at {rate(forecast.upper_per_s)} or less, which needs {exact(forecast.wanted)} {forecast.wanted === 1 ? "worker" : "workers"}. {error}; this forecast is {forecast.used ? "used" : "not used"}.
    </p>
  );
}

function Decisions({ events }: { events: ScalingEvent[] }) {
  const rows = events.map((event, index) => ({ event, index })).reverse();
  return (
    <Table label="Decisions" rows={rows} id={(row) => `${row.index}/${when(row.event)}`} empty={<Empty title="No decisions yet" />} columns={[
      { head: "When", cell: ({ event }) => moment(when(event)) },
      { head: "Change", cell: ({ event }) => <span class={`pill ${event.kind === "out" ? "accent" : event.kind === "in" ? "good" : "warn"}`}>{event.kind === "out" ? `+${event.workers ?? 1}` : event.kind === "in" ? `−${event.workers ?? 1}` : event.kind}</span> },
      { head: "Reason", class: "name", cell: ({ event }) => event.trigger ?? (event.kind === "in" ? "low load" : "–") },
      { head: "Detection", num: true, cell: ({ event }) => took(event.passed_ms ?? event.low_ms, event.detected_ms ?? event.cooled_ms) },
      { head: "Decision", num: true, cell: ({ event }) => took(event.detected_ms ?? event.cooled_ms, event.decided_ms) },
      { head: "Start or end", num: true, cell: ({ event }) => took(event.decided_ms, event.ready_ms ?? event.gone_ms) },
    ]} />
  );
}

function when(event: ScalingEvent): number | undefined {
  return event.at_ms ?? event.decided_ms ?? event.passed_ms ?? undefined;
}

function took(from: number | null | undefined, to: number | null | undefined): string {
  return from != null && to != null && to >= from ? `+${span((to - from) / 1000)}` : "–";
}
