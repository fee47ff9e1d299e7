/** Cells that ask for input, and whose GPU process ends before it is given. */

import type { NotebookPanel } from '@jupyterlab/notebook';
import type { Kernel, Session } from '@jupyterlab/services';
import type { Widget } from '@lumino/widgets';

const BOX = 'jp-OutputArea-stdin-item';

/** JupyterLab runs no cell of a notebook while one asks for input; one that has ended asks no more. */
export function followInput(panel: NotebookPanel): void {
  const listen = (
    session: Pick<Session.ISessionConnection, 'kernel'>,
    message: Kernel.IAnyMessageArgs
  ): void => {
    onMessage(session, message, panel.content);
  };
  const look = (): void => {
    panel.sessionContext.session?.anyMessage.connect(listen);
  };
  panel.sessionContext.sessionChanged.connect(look);
  look();
}

export function onMessage(
  { kernel }: Pick<Session.ISessionConnection, 'kernel'>,
  { msg, direction }: Kernel.IAnyMessageArgs,
  notebook: Widget
): void {
  if (direction === 'recv' && msg.header.msg_type === 'execute_reply' && kernel?.hasPendingInput) {
    kernel.removeInputGuard();
    for (const box of [...inside(notebook)].filter(widget => widget.hasClass(BOX))) {
      box.dispose();
    }
  }
}

function* inside(widget: Widget): Iterable<Widget> {
  for (const child of widget.children()) {
    yield child;
    yield* inside(child);
  }
}
