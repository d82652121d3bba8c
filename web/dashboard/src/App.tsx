// The application: the menu of pages, the banner about the connection, and the current page in an error boundary. If a
// page cannot be rendered, it shows the error, and other pages still work.

import { Component, type ComponentChildren, type FunctionComponent } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { Banner } from "./frame/Banner.tsx";
import { Head } from "./frame/Head.tsx";
import { Login } from "./frame/Login.tsx";
import { Side } from "./frame/Side.tsx";
import { forgetPast, remember } from "./node/history.ts";
import { useConnection } from "./node/hooks.ts";
import { useNode } from "./node/live.ts";
import { know } from "./node/places.ts";
import type { Cluster, Stats } from "./node/told.ts";
import { PAGES } from "./pages.ts";
import { useRoute, type Route } from "./route.ts";
import { Empty } from "./parts/Empty.tsx";

const RETRY_MS = 3_000;

export function App() {
  const route = useRoute();
  const { reach, run } = useConnection();
  const main = useRef<HTMLElement>(null);
  const stats = useNode<Stats>("stats");
  if (stats.data) remember(stats.data);
  const cluster = useNode<Cluster>("cluster");
  if (cluster.data) know(cluster.data.nodes);
  useEffect(() => forgetPast(), [run]);
  useEffect(() => {
    const page = PAGES.find((one) => one.name === route.page);
    document.title = [...route.rest, page?.title ?? "Page not found", stats.data?.name ?? "Dunlin"].join(" · ");
  }, [route.page, route.rest.join("/"), stats.data?.name]);
  // Moving the focus announces the new page to users of screen readers.
  useEffect(() => main.current?.focus({ preventScroll: true }), [route.page]);
  return (
    <div class="frame">
      <a class="skip" href="#main" onClick={(event) => (event.preventDefault(), main.current?.focus())}>Skip to content</a>
      <Side route={route} stats={stats.data} />
      <Head stats={stats.data} />
      <main class="main" id="main" ref={main} tabIndex={-1}>
        <Banner />
        {reach === "login" ? <Login /> : <Boundary key={route.page}><Page route={route} /></Boundary>}
      </main>
    </div>
  );
}

function Page({ route }: { route: Route }) {
  const page = PAGES.find((one) => one.name === route.page);
  if (!page) return <><h1>Page not found</h1><Empty title={`There is no page ${route.page}`}>The menu lists all pages; <kbd>?</kbd> shows the keyboard shortcuts.</Empty></>;
  const Shown: FunctionComponent<{ route: Route }> = page.shown;
  return <Shown route={route} />;
}

class Boundary extends Component<{ children: ComponentChildren }, { failed: Error | null }> {
  override state: { failed: Error | null } = { failed: null };

  static override getDerivedStateFromError(failed: Error) {
    return { failed };
  }

  override componentDidCatch(error: Error) {
    console.error(error);
    // Tries to render the page again, because it may be able to show a later response.
    setTimeout(() => this.setState({ failed: null }), RETRY_MS);
  }

  override render() {
    const { failed } = this.state;
    if (!failed) return this.props.children;
    return (
      <div role="alert">
        <Empty title="This page cannot show the data">
          {failed.message}{" "}
          <button type="button" class="button" onClick={() => this.setState({ failed: null })}>Try again</button>
        </Empty>
      </div>
    );
  }
}
