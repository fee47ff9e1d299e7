/** Shows notices as JupyterLab's notifications: one per notebook, the newest. */

import { Notification } from '@jupyterlab/apputils';

import { leavingNotices, Notices, waitingNotices, waitingOnes, WORTH_TELLING_S } from './notices';
import type { INotice, NoticeAction, Wanted } from './notices';
import type { ITranslate, Units } from './statusText';
import type { IChange, INodeModel } from './tokens';
import { actionLabel } from './views/workload';

const SHOWN_MS = 10_000;

export interface INotifierOptions {
  readonly wanted: () => Wanted;
  readonly units: () => Units;
  readonly trans: ITranslate;
  /** Whether there is a panel to show. */
  readonly hasPanel: () => boolean;
  readonly act: (action: NoticeAction, workloadId: string) => void;
}

interface IShown {
  readonly id: string;
  readonly topic: INotice['topic'];
}

export class Notifier {
  private readonly _notices = new Notices();
  private readonly _shown = new Map<string, IShown>();
  /** Whose waiting or leaving the user was told: once is enough, also when they close the notification. */
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
      this._show(notice);
    }
    this._tellStanding();
  }

  /** What holds for a while: a cell waits, a notebook is about to leave. */
  private _tellStanding(): void {
    if (this._model.state?.daemon.reachable !== true) {
      return; // nobody knows whether it still does
    }
    const { wanted, trans } = this._options;
    const notices =
      wanted() === 'none'
        ? []
        : [...waitingNotices(this._model, trans), ...leavingNotices(this._model, trans)];
    const standing = new Set(notices.map(notice => `${notice.topic} ${notice.workload}`));
    for (const [workload, shown] of this._shown) {
      if (shown.topic !== 'happened' && !standing.has(`${shown.topic} ${workload}`)) {
        Notification.dismiss(shown.id);
        this._shown.delete(workload);
      }
    }
    for (const told of this._told) {
      if (!standing.has(told)) {
        this._told.delete(told);
      }
    }
    for (const notice of notices) {
      const topic = `${notice.topic} ${notice.workload}`;
      if (!this._told.has(topic)) {
        this._told.add(topic);
        this._show(notice);
      }
    }
    // Who has just begun to wait may go on waiting without any further message.
    if (this._later === null && waitingOnes(this._model).some(one => !this._told.has(`waiting ${one.id}`))) {
      this._later = setTimeout(() => {
        this._later = null;
        this._tellStanding();
      }, 1000 * WORTH_TELLING_S);
    }
  }

  private _show(notice: INotice): void {
    const before = this._shown.get(notice.workload);
    if (before !== undefined) {
      Notification.dismiss(before.id);
    }
    const { hasPanel } = this._options;
    const offered = notice.actions.filter(action => action !== 'open-panel' || hasPanel());
    const actions = offered.map(action => ({
      label: this._label(action),
      callback: () => {
        this._options.act(action, notice.workload);
      }
    }));
    const id = Notification.emit(notice.text, notice.severity, {
      actions,
      autoClose: notice.stays ? false : SHOWN_MS
    });
    this._shown.set(notice.workload, { id, topic: notice.topic });
  }

  private _label(action: NoticeAction): string {
    const { trans } = this._options;
    switch (action) {
      case 'open-panel':
        return trans.__('GPUs');
      case 'go-to-notebook':
        return trans.__('Notebook');
      default:
        return actionLabel(action, trans);
    }
  }
}
