// A dialog in front of the page, as a `dialog` element, which keeps the keyboard focus inside. Escape closes the
// dialog.

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
