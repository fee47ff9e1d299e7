/** Carries out what the user asks for, and says so when the server refuses. */

import { Notification } from '@jupyterlab/apputils';
import { KernelAPI } from '@jupyterlab/services';
import type { Kernel, ServerConnection } from '@jupyterlab/services';
import { Signal } from '@lumino/signaling';
import type { ISignal } from '@lumino/signaling';

import { askSizes, confirmRelease } from './dialogs';
import type { IRefusedSizes } from './dialogs';
import * as restapi from './restapi';
import { shortened, shortenedName } from './statusText';
import type { ITranslate, Units } from './statusText';
import type { IWorkload } from './tokens';
import { TEXT_LENGTH } from './notices';
import { KEEP_MINUTES } from './views/context';
import type { WorkloadAction } from './views/context';

export class Orders {
  private readonly _ordered = new Set<string>();
  private readonly _changed = new Signal<this, void>(this);

  constructor(
    private readonly _server: ServerConnection.ISettings,
    private readonly _trans: ITranslate,
    private readonly _units: () => Units
  ) {}

  /** What is on its way has changed. */
  get changed(): ISignal<this, void> {
    return this._changed;
  }

  isOrdered(workload: IWorkload): boolean {
    return this._ordered.has(workload.id);
  }

  /**
   * Resolves when the order is under way, was refused (the user has read why), or was given up. One at a time for each
   * workload: a second click means what was there at the first.
   */
  async give(action: WorkloadAction, workload: IWorkload): Promise<void> {
    if (this.isOrdered(workload)) {
      return;
    }
    this._ordered.add(workload.id);
    this._changed.emit();
    try {
      await this._carryOut(action, workload);
    } catch (error) {
      Notification.error(shortened(this._why(error, workload), TEXT_LENGTH), { autoClose: false });
    } finally {
      this._ordered.delete(workload.id);
      this._changed.emit();
    }
  }

  private _why(error: unknown, workload: IWorkload): string {
    if (error instanceof restapi.Refused && error.status === 404) {
      return this._trans.__(
        '%1 has no GPU any more, nor a place in the queue.',
        shortenedName(workload.name, 60)
      );
    }
    return error instanceof Error ? error.message : String(error);
  }

  /** Has a kernel send all cells to its GPU process, or only those that begin with %%gpu. */
  async setAuto(kernel: Kernel.IKernelConnection, on: boolean): Promise<void> {
    const code = `%gpu auto ${on ? 'on' : 'off'}`;
    const why = await this._refusalOf(kernel, code);
    if (why !== null) {
      Notification.error(shortened(why, TEXT_LENGTH), { autoClose: false });
    }
  }

  /** Why a kernel has not run `code`; `null`: it has. */
  private async _refusalOf(kernel: Kernel.IKernelConnection, code: string): Promise<string | null> {
    try {
      const { content } = await kernel.requestExecute({ code, silent: true, store_history: false }).done;
      if (content.status === 'ok') {
        return null;
      }
      if (content.status === 'error') {
        return content.evalue;
      }
    } catch {
      // It was restarted, or has ended.
    }
    return this._trans.__(
      'The kernel has not run %1: a cell before it failed, or it has ended. Try again.',
      code
    );
  }

  private async _carryOut(action: WorkloadAction, workload: IWorkload): Promise<void> {
    switch (action) {
      case 'suspend':
      case 'resume':
        await restapi.act(this._server, workload.id, action);
        return;
      case 'keep':
        await restapi.change(this._server, workload.id, { keep_s: 60 * KEEP_MINUTES });
        return;
      case 'unkeep':
        await restapi.change(this._server, workload.id, { keep_s: 0 });
        return;
      case 'interrupt':
        if (workload.kernel_id !== null) {
          await KernelAPI.interruptKernel(workload.kernel_id, this._server);
        }
        return;
      case 'set-request':
        await this._changeSizes(workload);
        return;
      case 'release':
        if (await confirmRelease(workload, this._trans)) {
          await restapi.release(this._server, workload.id);
        }
        return;
    }
  }

  /** Asks again, with what was written and what is wrong with it, until it is taken or given up. */
  private async _changeSizes(workload: IWorkload): Promise<void> {
    let refused: IRefusedSizes | null = null;
    for (;;) {
      const sizes = await askSizes(workload, this._units(), this._trans, refused);
      if (sizes === null) {
        return;
      }
      try {
        await restapi.change(this._server, workload.id, sizes);
        return;
      } catch (error) {
        if (!(error instanceof restapi.Refused) || error.status === 404) {
          throw error;
        }
        refused = { sizes, why: error.message };
      }
    }
  }
}
