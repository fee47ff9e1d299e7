/** The popup behind the status bar's item. */

import { showPopup } from '@jupyterlab/statusbar';
import type { Popup } from '@jupyterlab/statusbar';

import { PopupWidget } from './widgets';
import type { ItemWidget } from './widgets';
import type { Workbench } from './workbench';

/** Opens the popup of the notebook in front; where it is open it closes it: JupyterLab leaves that to the item. */
export function popupOf(bench: Pick<Workbench, 'following' | 'current'>): (anchor: ItemWidget) => void {
  let popup: Popup | null = null;
  return anchor => {
    if (popup?.isDisposed === false) {
      popup.dispose();
      return;
    }
    const close = (): void => {
      popup?.dispose();
      anchor.node.querySelector('button')?.focus();
    };
    const body = new PopupWidget(bench.following, () => bench.current, close);
    popup = showPopup({ body, anchor, align: 'left', hasDynamicSize: true });
    requestAnimationFrame(() => {
      body.node.querySelector('button')?.focus();
    });
  };
}
