// A row of tabs. Arrow keys select the next or previous tab, as screen readers expect. The caller stores the selected
// tab.

import type { ComponentChildren } from "preact";
import { useId } from "preact/hooks";

export interface Tab {
  name: string;
  title: ComponentChildren;
}

interface Props {
  label: string;
  tabs: Tab[];
  chosen: string;
  choose: (name: string) => void;
  children: ComponentChildren;
}

export function Tabs({ label, tabs, chosen, choose, children }: Props) {
  const id = useId();
  const key = (event: KeyboardEvent) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const at = tabs.findIndex((tab) => tab.name === chosen);
    const next = tabs[(at + step + tabs.length) % tabs.length];
    if (!next) return;
    choose(next.name);
    document.getElementById(`${id}-${next.name}`)?.focus();
  };
  return (
    <>
      <div class="tabs" role="tablist" aria-label={label} onKeyDown={key}>
        {tabs.map((tab) => (
          <button key={tab.name} type="button" role="tab" id={`${id}-${tab.name}`} aria-selected={tab.name === chosen} aria-controls={`${id}-panel`}
            tabIndex={tab.name === chosen ? 0 : -1} onClick={() => choose(tab.name)}>{tab.title}</button>
        ))}
      </div>
      <div role="tabpanel" id={`${id}-panel`} aria-labelledby={`${id}-${chosen}`} class="stack">{children}</div>
    </>
  );
}
