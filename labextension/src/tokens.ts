/** What other plugins may ask for, and the shape of what the server tells. */

import { Token } from '@lumino/coreutils';
import type { ISignal } from '@lumino/signaling';

export type Phase = 'queued' | 'starting' | 'running' | 'suspending' | 'suspended' | 'failed';

/** The daemon as this page's server sees it. */
export interface IDaemon {
  readonly reachable: boolean;
  /** One sentence about the node, such as why nothing is known of it. */
  readonly message: string | null;
  readonly version: string | null;
  readonly simulated: boolean;
  /** Whether the server's user may act on everybody's workloads. */
  readonly administrator: boolean;
}

/** One GPU or MIG slice; `null` is what the driver does not say. */
export interface IGpu {
  readonly uuid: string;
  readonly index: number;
  readonly name: string;
  /** `null`: the daemon does not say. */
  readonly pool: string | null;
  readonly memory_total_bytes: number;
  readonly memory_used_bytes: number | null;
  readonly healthy: boolean;
  readonly unhealthy_reason: string | null;
  readonly unhealthy_parts: IParts | null;
  /** From 0 to 1. */
  readonly utilisation: number | null;
  readonly unplaced_bytes: number;
}

/** The workload for which another one moved or waits. */
export interface ICause {
  readonly id: string;
  readonly name: string;
  readonly since?: string | null;
}

/** One demand for GPU and where it stands. */
/** A cell whose GPU process is frozen: since when, what of it is in host memory, and for whom. */
export interface IFrozen {
  readonly since: string;
  readonly bytes: number;
  readonly for: string | null;
}

export interface IWorkload {
  readonly id: string;
  readonly name: string;
  /** `notebook`, `command`, or what a newer daemon has besides. */
  readonly kind: string;
  readonly phase: Phase;
  readonly request_bytes: number;
  readonly limit_bytes: number;
  readonly gpu_count: number;
  /** Its GPUs as people read them: `GPU 0`. */
  readonly gpus: readonly string[];
  readonly home: readonly string[];
  readonly current: readonly string[];
  readonly borrowed: boolean;
  readonly memory_used_bytes: number;
  readonly saved_bytes: number | null;
  readonly allowance_bytes: number;
  readonly executing: boolean;
  /** A cell of its waits for the GPU: interrupting the kernel ends that. */
  readonly cell_waits: boolean;
  /** It leaves its GPU at the end of its cell, or of its turn. */
  readonly yields: boolean;
  /** It has to, for a guarantee: that its user keeps it does not help. */
  readonly claimed: boolean;
  /** Starting: it left another GPU to be here, and was not away in between. */
  readonly moving: boolean;
  /** Its user holds it against everybody's burst until then. */
  readonly keep_until: string | null;
  /** Its running cell stands still; `null` also where the daemon is older. */
  readonly frozen: IFrozen | null;
  readonly position: number | null;
  readonly reason: string;
  /** The same to translate; `null`: the daemon is older. */
  readonly reason_parts: IParts | null;
  readonly cause: ICause | null;
  readonly since: string | null;
  /** Of this server, if it belongs to one of its kernels. */
  readonly kernel_id: string | null;
  readonly path: string | null;
  readonly own: boolean;
  /** Whose quota it counts in. */
  readonly queue: string | null;
  /** By arrival. */
  readonly order: number;
}

/** What a queue is owed, has and asks for in one pool, in GPUs; `null` is unlimited. */
export interface IQueuePool {
  readonly pool: string;
  readonly quota: number | null;
  readonly limit: number | null;
  readonly fair_share: number;
  readonly used: number;
  readonly requested: number;
}

/** A queue of the node, where the administrator configured some. */
export interface IQueue {
  readonly name: string;
  readonly parent: string | null;
  /** How many of it, and of those below it, wait. */
  readonly waiting: number;
  readonly pools: readonly IQueuePool[];
  /** Parents stand before their children. */
  readonly order: number;
}

/** A sentence of the daemon's: an English template with `%1`, `%2` …, and what is filled in. */
export interface IParts {
  readonly template: string;
  readonly arguments: readonly (string | IParts)[];
}

/** One thing that happened. */
export interface IEntry {
  readonly sequence: number;
  readonly time: string;
  /** `null`: it is about a GPU. */
  readonly workload: string | null;
  readonly name: string;
  readonly kind: string;
  readonly event: string;
  readonly reason: string;
  /** The same to translate; `null`: the daemon is older. */
  readonly reason_parts: IParts | null;
  readonly cause: ICause | null;
  readonly from: string | null;
  readonly to: string | null;
  readonly seconds: number | null;
  readonly bytes: number | null;
  /** Names of one's own variables that did not come back. */
  readonly missing: readonly string[];
  /** One's own cells that had completed and are not in what came back. */
  readonly lost_cells: readonly string[];
  readonly own: boolean;
}

/** What this page's user may do; the server and the daemon decide again. */
export interface IPermissions {
  readonly write: boolean;
  readonly execute: boolean;
}

/** The node as one value; replaced, never changed. */
export interface INodeState {
  readonly daemon: IDaemon;
  readonly gpus: ReadonlyMap<string, IGpu>;
  readonly workloads: ReadonlyMap<string, IWorkload>;
  /** Empty where none are configured. */
  readonly queues: ReadonlyMap<string, IQueue>;
  readonly history: readonly IEntry[];
}

/** What is new since the last time. */
export interface IChange {
  /** Entries of the history that this page did not know; none after its first connection. */
  readonly entries: readonly IEntry[];
  /** Nothing but memory and utilisation: may be drawn when it suits. */
  readonly figuresOnly: boolean;
}

/** A figure and when it was so, in seconds by the server's clock. */
export interface ISample {
  readonly at: number;
  readonly value: number;
}

/** The figures of one GPU over the last minutes. */
export interface IGpuSamples {
  readonly memory: readonly ISample[];
  readonly utilisation: readonly ISample[];
}

/** The node, for whatever shows it. */
export interface INodeModel {
  /** `null` until something is known, and again when it no longer is. */
  readonly state: INodeState | null;
  /** The last history that was known; it stays when the connection is lost. */
  readonly history: readonly IEntry[];
  readonly permissions: IPermissions;
  /** Why nothing is known, as one sentence; `null` while the page is connected. */
  readonly trouble: string | null;
  readonly changed: ISignal<INodeModel, IChange>;
  /** Seconds since the epoch by the server's clock. */
  now(): number;
  samplesOf(gpuUuid: string): IGpuSamples;
  /** The workload of a kernel of this server. */
  workloadOf(kernelId: string | null | undefined): IWorkload | null;
}

export const INodeModel = new Token<INodeModel>(
  'nls-jupyter:INodeModel',
  'The GPUs of the node, who holds them and what happened.'
);
