/** How a GPU's memory is divided, for its bar. Pure. */

import { burstBytes } from './statusText';
import type { IGpu, IWorkload } from './tokens';

export type SegmentKind = 'guaranteed' | 'burst' | 'unplaced' | 'free';

/** One piece of a bar. */
export interface ISegment {
  readonly kind: SegmentKind;
  /** `null`: nobody's of the daemon's. */
  readonly workload: IWorkload | null;
  readonly bytes: number;
  /** Of the whole bar, from 0 to 1. */
  readonly share: number;
}

/** Who is on a GPU now, by arrival. */
export function workloadsOn(gpu: IGpu, workloads: Iterable<IWorkload>): IWorkload[] {
  return [...workloads]
    .filter(workload => workload.current.includes(gpu.uuid))
    .sort((a, b) => a.order - b.order);
}

/**
 * The pieces of a GPU's bar: of each workload what it is guaranteed (used or not) and what it uses above that, what
 * processes use that nobody placed, and what is left. They sum up to the bar even where more is used than there is.
 */
export function segments(gpu: IGpu, workloads: readonly IWorkload[]): ISegment[] {
  const pieces: Omit<ISegment, 'share'>[] = [];
  for (const workload of workloads) {
    pieces.push({ kind: 'guaranteed', workload, bytes: workload.request_bytes });
    pieces.push({ kind: 'burst', workload, bytes: burstBytes(workload) });
  }
  pieces.push({ kind: 'unplaced', workload: null, bytes: gpu.unplaced_bytes });
  const taken = pieces.reduce((sum, piece) => sum + piece.bytes, 0);
  pieces.push({ kind: 'free', workload: null, bytes: Math.max(0, gpu.memory_total_bytes - taken) });
  const whole = Math.max(1, taken, gpu.memory_total_bytes);
  return pieces.filter(piece => piece.bytes > 0).map(piece => ({ ...piece, share: piece.bytes / whole }));
}
