/** Reads what the server sent, and refuses what is not as it should be. Pure. */

import type {
  ICause,
  IDaemon,
  IEntry,
  IFrozen,
  IGpu,
  IParts,
  IPermissions,
  IQueue,
  IQueuePool,
  IWorkload
} from './tokens';

/** Something came that this version cannot read; the message says where. */
export class Malformed extends Error {}

type Check<T> = (value: unknown, where: string) => T;
type Shape<T> = { [K in keyof T]-?: Check<T[K]> };

function fail(where: string, expected: string): never {
  throw new Malformed(`${where} should be ${expected}`);
}

const text: Check<string> = (value, where) => (typeof value === 'string' ? value : fail(where, 'a text'));
const flag: Check<boolean> = (value, where) =>
  typeof value === 'boolean' ? value : fail(where, 'true or false');
const amount: Check<number> = (value, where) =>
  typeof value === 'number' && Number.isFinite(value) && value >= 0 ? value : fail(where, 'a number');

function oneOf<T extends string>(...words: readonly T[]): Check<T> {
  return (value, where) => words.find(word => word === value) ?? fail(where, words.join(' or '));
}

function nullable<T>(check: Check<T>): Check<T | null> {
  return (value, where) => (value === null ? null : check(value, where));
}

/** The server of a page that was open during an update may be older. */
function newer<T>(check: Check<T>): Check<T | null> {
  return (value, where) => (value === undefined ? null : nullable(check)(value, where));
}

function list<T>(check: Check<T>): Check<readonly T[]> {
  return (value, where) =>
    Array.isArray(value) ? value.map((item, i) => check(item, `${where}[${i}]`)) : fail(where, 'a list');
}

function object<T>(shape: Shape<T>): Check<T> {
  return (value, where) => {
    const fields = record(value, where);
    const read: Partial<T> = {};
    for (const key of Object.keys(shape) as (keyof T & string)[]) {
      read[key] = shape[key](fields[key], `${where}.${key}`);
    }
    return read as T;
  };
}

/** Any object, with its fields unread. */
export function record(value: unknown, where: string): Readonly<Record<string, unknown>> {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    fail(where, 'an object');
  }
  return value as Record<string, unknown>;
}

const parts: Check<IParts> = object<IParts>({
  template: text,
  arguments: list((value, where) => (typeof value === 'string' ? value : parts(value, where)))
});

const cause = object<ICause>({
  id: text,
  name: text,
  since: newer(text)
});

export const readDaemon = object<IDaemon>({
  reachable: flag,
  message: nullable(text),
  version: nullable(text),
  simulated: flag,
  administrator: flag
});

export const readPermissions = object<IPermissions>({ write: flag, execute: flag });

export const readGpu = object<IGpu>({
  uuid: text,
  index: amount,
  name: text,
  pool: nullable(text),
  memory_total_bytes: amount,
  memory_used_bytes: nullable(amount),
  healthy: flag,
  unhealthy_reason: nullable(text),
  unhealthy_parts: newer(parts),
  utilisation: nullable(amount),
  unplaced_bytes: amount
});

export const readWorkload = object<IWorkload>({
  id: text,
  name: text,
  kind: text,
  phase: oneOf('queued', 'starting', 'running', 'suspending', 'suspended', 'failed'),
  request_bytes: amount,
  limit_bytes: amount,
  gpu_count: amount,
  gpus: list(text),
  home: list(text),
  current: list(text),
  borrowed: flag,
  memory_used_bytes: amount,
  saved_bytes: nullable(amount),
  allowance_bytes: amount,
  executing: flag,
  cell_waits: flag,
  yields: flag,
  claimed: flag,
  moving: flag,
  keep_until: nullable(text),
  frozen: newer(object<IFrozen>({ since: text, bytes: amount, for: nullable(text) })),
  position: nullable(amount),
  reason: text,
  reason_parts: newer(parts),
  cause: nullable(cause),
  since: nullable(text),
  kernel_id: nullable(text),
  path: nullable(text),
  own: flag,
  queue: newer(text),
  order: amount
});

const queuePool = object<IQueuePool>({
  pool: text,
  quota: nullable(amount),
  limit: nullable(amount),
  fair_share: amount,
  used: amount,
  requested: amount
});

export const readQueue = object<IQueue>({
  name: text,
  parent: nullable(text),
  waiting: amount,
  pools: list(queuePool),
  order: amount
});

const entry = object<IEntry>({
  sequence: amount,
  time: text,
  workload: nullable(text),
  name: text,
  kind: text,
  event: text,
  reason: text,
  reason_parts: newer(parts),
  cause: nullable(cause),
  from: nullable(text),
  to: nullable(text),
  seconds: nullable(amount),
  bytes: nullable(amount),
  missing: list(text),
  lost_cells: list(text),
  own: flag
});

export const readEntries = list(entry);

/** What every message begins with. */
export interface IHead {
  readonly version: number;
  /** The version that it follows; `null`: it is a whole state. */
  readonly after: number | null;
  readonly time: number;
}

export const readHead = object<IHead>({ version: amount, after: nullable(amount), time: amount });

/** The id in an entry of the daemon's status, as the answer to an order. */
export function readWorkloadId(value: unknown): string {
  return text(record(value, 'answer').id, 'answer.id');
}
