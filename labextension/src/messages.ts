/** Turns the server's messages into states: a whole one first, then what changed. Pure. */

import type { IGpu, INodeState, IPermissions, IQueue, IWorkload } from './tokens';
import {
  Malformed,
  readDaemon,
  readEntries,
  readGpu,
  readHead,
  readPermissions,
  readQueue,
  readWorkload,
  record
} from './validation';

/** As many entries as a page keeps. */
export const HISTORY_KEPT = 200;

/** What is known after a message. */
export interface IKnown {
  readonly version: number;
  readonly state: INodeState;
  readonly permissions: IPermissions;
  /** When the server sent it, in seconds by its clock. */
  readonly time: number;
  /** Whether nothing but figures has changed. */
  readonly figuresOnly: boolean;
}

const FIGURES = new Set([
  'memory_used_bytes',
  'saved_bytes',
  'allowance_bytes',
  'utilisation',
  'unplaced_bytes'
]);

/**
 * What is known after `message`. Throws Malformed when it cannot be read or does not follow `before`: the page must
 * then connect again, which begins with a whole state.
 */
export function understand(before: IKnown | null, message: unknown): IKnown {
  const fields = record(message, 'message');
  const head = readHead(message, 'message');
  if (head.after === null) {
    const state = whole(record(fields.snapshot, 'snapshot'));
    return { ...head, state, permissions: readPermissions(fields.may, 'may'), figuresOnly: false };
  }
  if (before?.version !== head.after) {
    throw new Malformed(`a difference to version ${head.after} came, which is not known here`);
  }
  const state = changed(before.state, fields);
  return { ...head, state, permissions: before.permissions, figuresOnly: hasFiguresOnly(fields) };
}

function hasFiguresOnly(fields: Readonly<Record<string, unknown>>): boolean {
  const parts: unknown[] = [fields.gpus ?? {}, fields.workloads ?? {}].flatMap(
    part => Object.values(part) as unknown[]
  );
  return (
    fields.daemon === undefined &&
    fields.history === undefined &&
    fields.queues === undefined &&
    parts.every(change => change !== null && Object.keys(change as object).every(name => FIGURES.has(name)))
  );
}

function whole(fields: Readonly<Record<string, unknown>>): INodeState {
  return {
    daemon: readDaemon(fields.daemon, 'daemon'),
    gpus: merged(new Map<string, IGpu>(), fields.gpus, readGpu, 'gpus'),
    workloads: merged(new Map<string, IWorkload>(), fields.workloads, readWorkload, 'workloads'),
    queues: merged(new Map<string, IQueue>(), fields.queues ?? {}, readQueue, 'queues'),
    history: readEntries(fields.history, 'history').slice(-HISTORY_KEPT)
  };
}

function changed(before: INodeState, fields: Readonly<Record<string, unknown>>): INodeState {
  const entries = fields.history === undefined ? [] : readEntries(fields.history, 'history');
  const anew = fields.history_anew === true;
  const history = [...(anew ? [] : before.history), ...entries].slice(-HISTORY_KEPT);
  return {
    daemon: fields.daemon === undefined ? before.daemon : readDaemon(fields.daemon, 'daemon'),
    gpus: merged(before.gpus, fields.gpus ?? {}, readGpu, 'gpus'),
    workloads: merged(before.workloads, fields.workloads ?? {}, readWorkload, 'workloads'),
    queues: merged(before.queues, fields.queues ?? {}, readQueue, 'queues'),
    history: entries.length > 0 || anew ? history : before.history
  };
}

/** `before` with the changed fields of each; `null` takes one away. What comes out is read as if it had come whole. */
function merged<T extends object>(
  before: ReadonlyMap<string, T>,
  changes: unknown,
  read: (value: unknown, where: string) => T,
  where: string
): ReadonlyMap<string, T> {
  const all = Object.entries(record(changes, where));
  if (all.length === 0) {
    return before;
  }
  const result = new Map(before);
  for (const [name, fields] of all) {
    if (fields === null) {
      result.delete(name);
    } else {
      const was = before.get(name);
      result.set(name, read({ ...was, ...record(fields, `${where}.${name}`) }, `${where}.${name}`));
    }
  }
  return result;
}
