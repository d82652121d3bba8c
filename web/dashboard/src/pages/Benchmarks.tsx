// The page Benchmarks: shows the benchmark report whose file the node's configuration names. The file is shown
// unchanged, without scripts.

import { ask, Problem } from "../node/ask.ts";
import { useAsked } from "../node/hooks.ts";
import { Empty, Failed, Waiting } from "../parts/Empty.tsx";

export function Benchmarks() {
  const { data, error } = useAsked("report", (signal) => ask<string>("/report", { signal }).then(() => true), 0);
  const missing = error instanceof Problem && error.status === 404;
  return (
    <>
      <div class="title">
        <h1>Benchmarks</h1>
        {data && <span class="right"><a class="button" href="report" target="_blank" rel="noopener">Open in a new tab</a></span>}
      </div>
      {missing && (
        <section class="card">
          <Empty title="This node was started without a report" run={["dunlin bench all --keep bench-runs", "dunlin report --out report.html", "dunlin dev --http-report report.html"]}>
            Run the benchmarks, or use the runs in Dunlin's repository. Then write the report, and start the node with it:
          </Empty>
        </section>
      )}
      {!missing && <Failed error={error} />}
      {!data && !error && <Waiting what="the report" />}
      {data && <iframe class="report" src="report" title="The benchmark report, with the figures of other systems" sandbox="" />}
    </>
  );
}
