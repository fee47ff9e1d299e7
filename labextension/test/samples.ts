/** The messages that the Python tests hold against the server, and JupyterLab's own translation into English. */

import { understand } from '../src/messages';
import type { IKnown } from '../src/messages';
import type { IEntry, IWorkload } from '../src/tokens';
import { translation } from '../src/translation';

import delta from '../samples/delta.json';
import snapshot from '../samples/snapshot.json';

export { delta, snapshot };

export const trans = translation(null);

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
