/** Shows notices as JupyterLab's notifications: one per notebook, the newest. */

import { Notification } from '@jupyterlab/apputils';

import { Notices, waitingNotices, waitingOnes, WORTH_TELLING_S } from './notices';
import type { INotice, NoticeAction, Wanted } from './notices';
import type { ITranslate, Units } from './statusText';
import type { IChange, INodeModel } from './tokens';

const SHOWN_MS = 10_000;

export interface INotifierOptions {
  readonly wanted: () => Wanted;
  readonly units: () => Units;
  readonly trans: ITranslate;
  readonly act: (action: NoticeAction, workloadId: string) => void;
}

interface IShown {
  readonly id: string;
  /** Whether it says that a cell waits, which is over by itself. */
  readonly waiting: boolean;
}

export class Notifier {
  private readonly _notices = new Notices();
  private readonly _shown = new Map<string, IShown>();
  /** Waiting cells of which the user was told: once is enough, also when they close the notification. */
  private readonly _told = new Set<string>();
  private _later: ReturnType<typeof setTimeout> | null = null;

  constructor(
    private readonly _model: INodeModel,
    private readonly _options: INotifierOptions
  ) {
    _model.changed.connect(this._onChange, this);
  }

  dispose(): void {
    this._model.changed.disconnect(this._onChange, this);
    if (this._later !== null) {
      clearTimeout(this._later);
    }
  }

  private _onChange(_: INodeModel, change: IChange): void {
    const { wanted, units, trans } = this._options;
    this._notices.note(this._model.state?.workloads.values() ?? []);
    for (const notice of this._notices.of(change.entries, wanted(), units(), trans)) {
      this._show(notice, false);
    }
    this._tellWaiting();
  }

  private _tellWaiting(): void {
    const waiting = this._options.wanted() === 'none' ? [] : waitingNotices(this._model, this._options.trans);
    const ids = new Set(waiting.map(notice => notice.workload));
    for (const [workload, shown] of this._shown) {
      if (shown.waiting && !ids.has(workload)) {
        Notification.dismiss(shown.id);
        this._shown.delete(workload);
      }
    }
    for (const told of this._told) {
      if (!ids.has(told)) {
        this._told.delete(told);
      }
    }
    for (const notice of waiting) {
      if (!this._told.has(notice.workload)) {
        this._told.add(notice.workload);
        this._show(notice, true);
      }
    }
    // Who has just begun to wait may go on waiting without any further message.
    if (this._later === null && waitingOnes(this._model).some(one => !this._told.has(one.id))) {
      this._later = setTimeout(() => {
        this._later = null;
        this._tellWaiting();
      }, 1000 * WORTH_TELLING_S);
    }
  }

  private _show(notice: INotice, waiting: boolean): void {
    const before = this._shown.get(notice.workload);
    if (before !== undefined) {
      Notification.dismiss(before.id);
    }
    const actions = notice.actions.map(action => ({
      label: this._label(action),
      callback: () => {
        this._options.act(action, notice.workload);
      }
    }));
    const id = Notification.emit(notice.text, notice.severity, {
      actions,
      autoClose: notice.stays ? false : SHOWN_MS
    });
    this._shown.set(notice.workload, { id, waiting });
  }

  private _label(action: NoticeAction): string {
    const { trans } = this._options;
    switch (action) {
      case 'open-panel':
        return trans.__('GPUs');
      case 'resume':
        return trans.__('Resume');
      case 'set-request':
        return trans.__('Request…');
      case 'go-to-notebook':
        return trans.__('Notebook');
    }
  }
}
