/** What is worth a notification, and what it says. Pure, but for what it remembers. */

import {
  askedFor,
  cameBackWithLess,
  entryText,
  gpusText,
  secondsSince,
  shortened,
  shortenedName,
  whereText,
  whyText
} from './statusText';
import type { ITranslate, Units } from './statusText';
import type { IEntry, INodeModel, IWorkload } from './tokens';

/** JupyterLab cuts longer texts itself, in the middle of a word. */
export const TEXT_LENGTH = 140;
/** Of a name, so that there is room for the reason. */
const NAME_LENGTH = 40;
/** A cell that waits for less is no news. */
export const WORTH_TELLING_S = 2;

export type Wanted = 'all' | 'important' | 'none';
export type Severity = 'info' | 'success' | 'warning' | 'error';
export type NoticeAction = 'open-panel' | 'resume' | 'keep' | 'interrupt' | 'set-request' | 'go-to-notebook';

/** One notification. Each workload has at most one: a newer takes the place of the older. */
export interface INotice {
  readonly workload: string;
  /** What happened is over; a cell that waits and a notebook that is about to leave are so for a while. */
  readonly topic: 'happened' | 'waiting' | 'leaving';
  readonly severity: Severity;
  readonly text: string;
  readonly actions: readonly NoticeAction[];
  /** Whether it stays until the user has seen it. */
  readonly stays: boolean;
}

interface IKind {
  readonly severity: Severity;
  readonly important: boolean;
  readonly actions: readonly NoticeAction[];
}

const KINDS: Readonly<Record<string, IKind>> = {
  moved: { severity: 'info', important: false, actions: ['open-panel', 'go-to-notebook'] },
  suspended: { severity: 'info', important: true, actions: ['resume', 'open-panel'] },
  frozen: { severity: 'info', important: true, actions: ['open-panel', 'go-to-notebook'] },
  thawed: { severity: 'info', important: false, actions: ['go-to-notebook', 'open-panel'] },
  evicted: { severity: 'warning', important: true, actions: ['open-panel', 'go-to-notebook'] },
  interrupted: { severity: 'warning', important: true, actions: ['open-panel', 'go-to-notebook'] },
  exited: { severity: 'warning', important: true, actions: ['open-panel', 'go-to-notebook'] },
  failed: { severity: 'error', important: true, actions: ['resume', 'open-panel'] },
  // These two only where something is missing: what one asked for oneself is else no news.
  resumed: { severity: 'warning', important: true, actions: ['go-to-notebook', 'open-panel'] },
  started: { severity: 'warning', important: true, actions: ['go-to-notebook', 'open-panel'] },
  restored: { severity: 'success', important: true, actions: ['go-to-notebook'] },
  released: { severity: 'info', important: true, actions: ['open-panel'] }
};
const BACK = new Set(['resumed', 'started']);
const LOST_BY = new Set(['evicted', 'exited', 'failed']);

/** Follows the history of this page's notebooks. */
export class Notices {
  private readonly _mine = new Set<string>();
  private readonly _lost = new Set<string>();

  /** Remember whose workloads are of kernels of this server: an ended one is in the history only. */
  note(workloads: Iterable<IWorkload>): void {
    for (const workload of workloads) {
      if (workload.own && workload.kernel_id !== null && workload.kind === 'notebook') {
        this._mine.add(workload.id);
      }
    }
  }

  /** What `entries` are worth telling, oldest first. */
  of(entries: readonly IEntry[], wanted: Wanted, units: Units, trans: ITranslate): INotice[] {
    return entries.flatMap(entry => {
      const notice = this._of(entry, wanted, units, trans);
      return notice === null ? [] : [notice];
    });
  }

  private _of(entry: IEntry, wanted: Wanted, units: Units, trans: ITranslate): INotice | null {
    const workload = entry.workload;
    if (workload === null || !this._mine.has(workload)) {
      return null;
    }
    const event = this._eventOf(entry, workload);
    const kind = KINDS[event];
    if (kind === undefined || wanted === 'none') {
      return null;
    }
    const less = cameBackWithLess(entry);
    if (wanted === 'important' && !kind.important && !less) {
      return null;
    }
    if (askedFor(entry) || (BACK.has(event) && !less)) {
      return null;
    }
    const severity = less ? 'warning' : kind.severity;
    return {
      workload,
      topic: 'happened',
      severity,
      text: shortened(entryText({ ...entry, name: named(entry) }, units, trans), TEXT_LENGTH),
      actions: kind.actions,
      stays: severity === 'warning' || severity === 'error'
    };
  }

  /** A resume after the process was lost is a restore: what was not saved is missing. */
  private _eventOf(entry: IEntry, workload: string): string {
    if (LOST_BY.has(entry.event)) {
      this._lost.add(workload);
      return entry.event;
    }
    const lost = this._lost.has(workload);
    if (['resumed', 'started', 'released'].includes(entry.event)) {
      this._lost.delete(workload);
    }
    return entry.event === 'resumed' && lost ? 'restored' : entry.event;
  }
}

/** Notebooks of this server's kernels that wait for a GPU, however short a time. */
export function waitingOnes(model: INodeModel): IWorkload[] {
  return [...(model.state?.workloads.values() ?? [])].filter(
    workload => workload.own && workload.kernel_id !== null && workload.position !== null
  );
}

/** Notebooks of this server's kernels that are about to leave their GPU; who has to leave at once is told afterwards. */
export function leavingNotices(model: INodeModel, trans: ITranslate): INotice[] {
  const all = [...(model.state?.workloads.values() ?? [])];
  const leaving = all.filter(
    one =>
      one.own && one.kernel_id !== null && one.yields && (one.executing || !one.claimed) && !askedFor(one)
  );
  return leaving.map(workload => {
    const why =
      workload.cause === null
        ? whyText(workload, trans)
        : trans.__('%1 needs the memory', named(workload.cause));
    return {
      workload: workload.id,
      topic: 'leaving',
      severity: 'info',
      text: shortened(leavingText(workload, why, trans), TEXT_LENGTH),
      // Nobody is kept from giving back what is guaranteed to another.
      actions: workload.claimed ? ['open-panel'] : ['keep', 'open-panel'],
      stays: true
    };
  });
}

function named(one: { readonly name: string }): string {
  return shortenedName(one.name, NAME_LENGTH);
}

function leavingText(workload: IWorkload, why: string, trans: ITranslate): string {
  const gpus = gpusText(workload.gpus, trans);
  return workload.executing
    ? trans.__('%1 leaves %2 after this cell: %3', named(workload), gpus, why)
    : trans.__('%1 leaves %2 soon: %3', named(workload), gpus, why);
}

/** What is said of those who have waited for a moment. */
export function waitingNotices(model: INodeModel, trans: ITranslate): INotice[] {
  const long = waitingOnes(model).filter(
    workload => (secondsSince(workload.since, model.now()) ?? 0) >= WORTH_TELLING_S
  );
  return long.map(workload => ({
    workload: workload.id,
    topic: 'waiting',
    severity: 'info',
    text: shortened(
      `${named(workload)}: ${whereText(workload, trans)}, ${whyText(workload, trans)}`,
      TEXT_LENGTH
    ),
    actions: [...(workload.cell_waits ? ['interrupt' as const] : []), 'set-request', 'open-panel'],
    stays: true
  }));
}
