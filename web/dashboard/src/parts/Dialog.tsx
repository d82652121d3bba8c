// A window in front of the page: the browser's own dialog, which keeps the focus. Escape closes it.

import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";

export function Dialog({ title, close, children }: { title: string; close: () => void; children: ComponentChildren }) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const element = dialog.current;
    element?.showModal();
    return () => element?.close();
  }, []);
  const outside = (event: MouseEvent) => event.target === dialog.current && close();
  return (
    <dialog ref={dialog} aria-label={title} onClose={close} onClick={outside}>
      {children}
    </dialog>
  );
}
