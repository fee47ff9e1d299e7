/** What every view gets. */

import type { ITranslate, Units } from '../statusText';
import type { INodeModel, IWorkload } from '../tokens';

export type WorkloadAction = 'suspend' | 'resume' | 'set-request' | 'release';

export interface IViewContext {
  readonly model: INodeModel;
  readonly units: Units;
  readonly trans: ITranslate;
  readonly act: (action: WorkloadAction, workload: IWorkload) => void;
  readonly goTo: (workload: IWorkload) => void;
  readonly openPanel: () => void;
}

/** Whether this page's user may act on a workload: on their own, and administrators on all. */
export function mayAct(model: INodeModel, workload: IWorkload): boolean {
  const { write, execute } = model.permissions;
  return write && (workload.own || (execute && (model.state?.daemon.administrator ?? false)));
}

/** What can be done with a workload now, in the order of its buttons. */
export function actionsFor(model: INodeModel, workload: IWorkload): WorkloadAction[] {
  if (!mayAct(model, workload)) {
    return [];
  }
  const away = workload.phase === 'suspended' || workload.phase === 'failed';
  const notebook = workload.kind === 'notebook';
  const first: WorkloadAction[] = away
    ? ['resume']
    : notebook && workload.phase === 'running'
      ? ['suspend']
      : [];
  return [...first, 'set-request', 'release'];
}
