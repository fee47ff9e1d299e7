/** What this page knows of the node. Views listen to `changed` and read. */

import { Signal } from '@lumino/signaling';
import type { ISignal } from '@lumino/signaling';

import type { IListener } from './connection';
import { understand } from './messages';
import type { IKnown } from './messages';
import type {
  IChange,
  IEntry,
  IGpuSamples,
  INodeModel,
  INodeState,
  IPermissions,
  ISample,
  IWorkload
} from './tokens';
import { Malformed } from './validation';

/** How far the sparklines look back. */
export const SAMPLES_KEPT_S = 120;

export class NodeModel implements INodeModel, IListener {
  private readonly _changed = new Signal<this, IChange>(this);
  private readonly _samples = new Map<string, { memory: ISample[]; utilisation: ISample[] }>();
  private _known: IKnown | null = null;
  private _history: readonly IEntry[] = [];
  /** The newest entry that was ever known: a server that has just started knows none for a moment. */
  private _newest: IEntry | undefined;
  private _trouble: string | null;
  private _clockOffsetS = 0;
  /** When the first message was sent. */
  private _heardSince: number | null = null;

  /**
   * @param _sentences what is said when nothing is known: at first, without a connection, and when it makes no sense.
   * @param _clock seconds since the epoch by this machine's clock, which may be far off.
   */
  constructor(
    private readonly _sentences: { connecting: string; lost: string; unreadable: string },
    private readonly _clock: () => number = () => Date.now() / 1000
  ) {
    this._trouble = _sentences.connecting;
  }

  get state(): INodeState | null {
    return this._known?.state ?? null;
  }

  get history(): readonly IEntry[] {
    return this._history;
  }

  get permissions(): IPermissions {
    return this._known?.permissions ?? { write: false, execute: false };
  }

  get trouble(): string | null {
    return this._trouble;
  }

  get changed(): ISignal<this, IChange> {
    return this._changed;
  }

  now(): number {
    return this._clock() + this._clockOffsetS;
  }

  samplesOf(gpuUuid: string): IGpuSamples {
    return this._samples.get(gpuUuid) ?? { memory: [], utilisation: [] };
  }

  workloadOf(kernelId: string | null | undefined): IWorkload | null {
    let found: IWorkload | null = null;
    for (const workload of this.state?.workloads.values() ?? []) {
      if (kernelId && workload.kernel_id === kernelId && workload.kind === 'notebook') {
        // A kernel may have started another kernel: its own workload came first.
        found = found === null || workload.order < found.order ? workload : found;
      }
    }
    return found;
  }

  received(message: unknown): boolean {
    try {
      this._known = understand(this._known, message);
    } catch (error) {
      if (!(error instanceof Malformed)) {
        throw error;
      }
      console.warn(`nls-jupyter: a message of the server was not understood: ${error.message}`);
      this._forget(this._sentences.unreadable);
      return false;
    }
    this._trouble = null;
    this._clockOffsetS = this._known.time - this._clock();
    this._heardSince ??= this._known.time;
    this._sample(this._known);
    const entries = this._newEntries(this._known.state.history, this._heardSince);
    this._history = this._known.state.history;
    this._newest = this._history[this._history.length - 1] ?? this._newest;
    this._changed.emit({ entries, figuresOnly: this._known.figuresOnly });
    return true;
  }

  lost(why: string | null = null): void {
    // What could not be read has a sentence of its own until something can be.
    if (why !== null || this._trouble !== this._sentences.unreadable) {
      this._forget(why ?? this._sentences.lost);
    }
  }

  private _forget(why: string): void {
    this._known = null;
    this._trouble = why;
    this._changed.emit({ entries: [], figuresOnly: false });
  }

  /** What a reconnected page missed is new to it; what happened before its first message is not. */
  private _newEntries(all: readonly IEntry[], heardSince: number): readonly IEntry[] {
    const last = this._newest;
    const at = all.findIndex(entry => entry.sequence === last?.sequence && entry.time === last.time);
    if (at >= 0) {
      return all.slice(at + 1);
    }
    // More has happened than is kept, or the history has begun anew, or it was not known so far.
    const since = last === undefined ? heardSince : Date.parse(last.time) / 1000;
    return all.filter(entry => Date.parse(entry.time) / 1000 > since);
  }

  private _sample(known: IKnown): void {
    for (const uuid of this._samples.keys()) {
      if (!known.state.gpus.has(uuid)) {
        this._samples.delete(uuid);
      }
    }
    for (const gpu of known.state.gpus.values()) {
      const samples = this._samples.get(gpu.uuid) ?? { memory: [], utilisation: [] };
      const share = gpu.memory_used_bytes === null ? null : gpu.memory_used_bytes / gpu.memory_total_bytes;
      this._samples.set(gpu.uuid, {
        memory: extended(samples.memory, known.time, share),
        utilisation: extended(samples.utilisation, known.time, gpu.utilisation)
      });
    }
  }
}

function extended(samples: ISample[], at: number, value: number | null): ISample[] {
  // One older sample stays, so that the line reaches the left edge.
  const recent = samples.filter((sample, i) => {
    const next = samples[i + 1];
    return sample.at <= at && (next === undefined || next.at > at - SAMPLES_KEPT_S);
  });
  return value === null ? recent : [...recent, { at, value }];
}
