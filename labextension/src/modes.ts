/** Whether notebooks send all their cells to their GPU processes (auto mode), as their kernels tell. */

import type { ISessionContext } from '@jupyterlab/apputils';
import type { Kernel } from '@jupyterlab/services';
import { Signal } from '@lumino/signaling';
import type { ISignal } from '@lumino/signaling';

/** A kernel that has `%gpu` lists a comm of this target and id; asked by any message, it tells. */
const TARGET = 'nls_jupyter.mode';

/** The part of a kernel's connection that is needed. */
export type IKernel = Pick<
  Kernel.IKernelConnection,
  'id' | 'status' | 'disposed' | 'handleComms' | 'hasComm' | 'createComm' | 'requestCommInfo'
>;

export class KernelModes {
  private readonly _changed = new Signal<this, void>(this);
  private readonly _auto = new Map<string, boolean>();
  /** Those that have been asked, and whether they had a workload then. */
  private readonly _asked = new WeakMap<IKernel, boolean>();

  /** `hasWorkload`: whether a kernel, by its id, has one. */
  constructor(private readonly _hasWorkload: (kernelId: string) => boolean) {}

  get changed(): ISignal<this, void> {
    return this._changed;
  }

  /** `null`: not known, or a kernel without `%gpu`. */
  isAuto(kernelId: string | null | undefined): boolean | null {
    return kernelId ? (this._auto.get(kernelId) ?? null) : null;
  }

  /** Follow whatever kernel a notebook has. */
  follow(session: ISessionContext): void {
    const look = (): void => {
      const kernel = session.session?.kernel;
      if (kernel) {
        this.look(kernel);
      }
    };
    session.kernelChanged.connect(look);
    session.statusChanged.connect(look);
    look();
  }

  /** Something has changed about a kernel: ask one that was not asked yet, forget what a restart ended. */
  look(kernel: IKernel): void {
    if (kernel.status === 'restarting' || kernel.status === 'autorestarting') {
      this._asked.delete(kernel);
      this._forget(kernel);
      return;
    }
    const ready = kernel.status === 'idle' || kernel.status === 'busy';
    if (ready && kernel.handleComms && this._isToBeAsked(kernel)) {
      this._asked.set(kernel, this._hasWorkload(kernel.id));
      // One connection alone hears of a kernel's comms; no other takes its place.
      kernel.disposed.connect(this._forget, this);
      this._ask(kernel).catch((error: unknown) => {
        console.debug('nls-jupyter: a kernel did not tell whether it has %gpu.', error);
      });
    }
  }

  /** One that had no %gpu may have loaded it since (`%load_ext`): its first workload shows that. */
  private _isToBeAsked(kernel: IKernel): boolean {
    const hadWorkload = this._asked.get(kernel);
    const isNew = hadWorkload === false && this._hasWorkload(kernel.id) && !this._auto.has(kernel.id);
    return hadWorkload === undefined || isNew;
  }

  private _forget(kernel: Pick<IKernel, 'id'>): void {
    this._auto.delete(kernel.id);
    this._changed.emit();
  }

  private async _ask(kernel: IKernel): Promise<void> {
    const reply = await kernel.requestCommInfo({ target_name: TARGET });
    if (reply.content.status !== 'ok' || !(TARGET in reply.content.comms) || kernel.hasComm(TARGET)) {
      return;
    }
    const comm = kernel.createComm(TARGET, TARGET);
    comm.onMsg = message => {
      const { auto } = message.content.data;
      if (typeof auto === 'boolean') {
        this._auto.set(kernel.id, auto);
        this._changed.emit();
      }
    };
    comm.send({});
  }
}
