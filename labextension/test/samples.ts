/** The messages that the Python tests hold against the server, and a translation that only fills in. */

import { understand } from '../src/messages';
import type { IKnown } from '../src/messages';
import type { ITranslate } from '../src/statusText';
import type { IEntry, IWorkload } from '../src/tokens';

import delta from '../samples/delta.json';
import snapshot from '../samples/snapshot.json';

export { delta, snapshot };

export const trans: ITranslate = {
  __: (message, ...values) => message.replace(/%(\d)/g, (_, n: string) => String(values[Number(n) - 1])),
  _n: (one, many, number, ...values) => trans.__(number === 1 ? one : many, number, ...values)
};

/** A copy to change. */
export function copy<T>(value: T): T {
  return JSON.parse(JSON.stringify(value)) as T;
}

export function known(): IKnown {
  return understand(null, snapshot);
}

export function workload(id: string, fields: Partial<IWorkload> = {}): IWorkload {
  const found = known().state.workloads.get(id);
  if (found === undefined) {
    throw new Error(`the samples have no ${id}`);
  }
  return { ...found, ...fields };
}

export function entry(fields: Partial<IEntry> = {}): IEntry {
  const [first] = known().state.history;
  if (first === undefined) {
    throw new Error('the samples have no history');
  }
  return { ...first, ...fields };
}
