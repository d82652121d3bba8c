import { PAGES } from "../pages.ts";
import { Dialog } from "../parts/Dialog.tsx";
import { SHORTCUTS } from "./shortcuts.ts";

export function Keys({ close }: { close: () => void }) {
  return (
    <Dialog title="Keyboard shortcuts" close={close}>
      <div>
        <h2>Keyboard shortcuts</h2>
        <dl class="facts">
          {SHORTCUTS.map(([key, what]) => [<dt key={key}><kbd>{key}</kbd></dt>, <dd key={what}>{what}</dd>])}
          {PAGES.map((page) => [<dt key={page.name}><kbd>g</kbd> <kbd>{page.key}</kbd></dt>, <dd key={page.title}>{page.title}</dd>])}
        </dl>
        <div class="row"><button type="button" class="button first" onClick={close}>Close</button></div>
      </div>
    </Dialog>
  );
}
