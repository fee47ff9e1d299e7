/** Cells that ask for input, and whose GPU process ends before it is given. */

import type { ISessionContext } from '@jupyterlab/apputils';
import type { Kernel, Session } from '@jupyterlab/services';

/** JupyterLab runs no cell of a notebook while one asks for input; one that has ended asks no more. */
export function followInput(session: ISessionContext): void {
  const look = (): void => {
    session.session?.anyMessage.connect(onMessage);
  };
  session.sessionChanged.connect(look);
  look();
}

export function onMessage(
  session: Pick<Session.ISessionConnection, 'kernel'>,
  { msg, direction }: Kernel.IAnyMessageArgs
): void {
  if (direction === 'recv' && msg.header.msg_type === 'execute_reply' && session.kernel?.hasPendingInput) {
    session.kernel.removeInputGuard();
  }
}
