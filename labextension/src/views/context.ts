/** What every view gets. */

import { askedFor } from '../statusText';
import type { ITranslate, Units } from '../statusText';
import type { INodeModel, IWorkload } from '../tokens';

export type WorkloadAction =
  'suspend' | 'resume' | 'keep' | 'unkeep' | 'interrupt' | 'set-request' | 'release';

/** For how long a click keeps a notebook on its GPU. */
export const KEEP_MINUTES = 10;

export interface IViewContext {
  readonly model: INodeModel;
  readonly units: Units;
  readonly trans: ITranslate;
  /** Whether an order for it is on its way to the server. */
  readonly isOrdered: (workload: IWorkload) => boolean;
  readonly act: (action: WorkloadAction, workload: IWorkload) => void;
  readonly goTo: (workload: IWorkload) => void;
  /** `null` where there is none: its plugin can be disabled by itself. */
  readonly openPanel: (() => void) | null;
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
  return [...firstActions(workload), 'set-request', 'release'];
}

function firstActions(workload: IWorkload): WorkloadAction[] {
  if (workload.position !== null) {
    // Only the server of a kernel can interrupt it.
    return workload.cell_waits && workload.own && workload.kernel_id !== null ? ['interrupt'] : [];
  }
  if (workload.phase === 'suspended' || workload.phase === 'failed') {
    return ['resume'];
  }
  if (workload.kind !== 'notebook' || workload.phase !== 'running') {
    return [];
  }
  if (workload.yields && askedFor(workload)) {
    return ['resume'];
  }
  return ['suspend', workload.keep_until === null ? 'keep' : 'unkeep'];
}
