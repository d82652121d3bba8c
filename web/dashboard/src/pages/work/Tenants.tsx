// The share of work that each tenant received, compared with the tenant's fair share.

import type { Tenant, Work } from "../../node/told_work.ts";
import { Card } from "../../parts/Card.tsx";
import { Empty } from "../../parts/Empty.tsx";
import { Table } from "../../parts/Table.tsx";
import { count, exact, percent, rate } from "../../quantity.ts";

export function Tenants({ told }: { told: Work }) {
  const tenants = told.tenants ?? [];
  const done = tenants.reduce((all, tenant) => all + (tenant.completed_per_s ?? 0), 0);
  return (
    <Card title="Tenants" flush right={told.jain != null && <span class="soft small">Jain's index of the last seconds: {told.jain.toFixed(4)}</span>}>
      <Table label="Tenants" rows={tenants} id={(tenant) => tenant.name} empty={<Empty title="No tenants yet" run={["dunlin task submit count hello --tenant acme"]} />} columns={[
        { head: "Tenant", class: "name", cell: (tenant) => tenant.name },
        { head: "Weight", num: true, by: (tenant) => tenant.weight, cell: (tenant) => exact(tenant.weight) },
        { head: "Fair share", num: true, by: (tenant) => tenant.share, cell: (tenant) => percent(tenant.share) },
        { head: "Received", num: true, by: (tenant) => tenant.completed_per_s ?? 0, cell: (tenant) => <Got tenant={tenant} all={done} /> },
        { head: "Completed/s", num: true, by: (tenant) => tenant.completed_per_s ?? 0, cell: (tenant) => rate(tenant.completed_per_s) },
        { head: "Running", num: true, by: (tenant) => tenant.running, cell: (tenant) => <>{exact(tenant.running)}{tenant.running_max != null && <span class="soft small"> of {exact(tenant.running_max)}</span>}</> },
        { head: "Ready", num: true, by: (tenant) => tenant.ready, cell: (tenant) => count(tenant.ready) },
        { head: "Queued", num: true, by: (tenant) => tenant.queued, cell: (tenant) => <Queued tenant={tenant} /> },
        { head: "Completed", num: true, by: (tenant) => tenant.completed, cell: (tenant) => count(tenant.completed) },
        { head: "Failed", num: true, by: (tenant) => tenant.failed, cell: (tenant) => count(tenant.failed) },
        { head: "Dead letters", num: true, by: (tenant) => tenant.dead, cell: (tenant) => <span class={tenant.dead > 0 ? "bad" : ""}>{exact(tenant.dead)}</span> },
      ]} />
    </Card>
  );
}

function Got({ tenant, all }: { tenant: Tenant; all: number }) {
  const got = all > 0 ? (tenant.completed_per_s ?? 0) / all : 0;
  return (
    <span title={`${percent(got)} of the tasks that were completed in the last seconds`}>
      {percent(all > 0 ? got : null)}
      <span class="bar" style={{ display: "block" }} aria-hidden="true"><i style={{ width: `${got * 100}%` }} /></span>
    </span>
  );
}

function Queued({ tenant }: { tenant: Tenant }) {
  const full = tenant.queued_max ? tenant.queued / tenant.queued_max : 0;
  return <span class={full > 0.9 ? "bad" : full > 0.7 ? "warn" : ""} title={tenant.queued_max ? `${percent(full)} of ${exact(tenant.queued_max)}` : undefined}>{count(tenant.queued)}</span>;
}
