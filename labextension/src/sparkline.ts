/** The line of a figure over the last minutes, as an SVG path. Pure. */

import type { ISample } from './tokens';

/**
 * A stepped line of `samples` (values from 0 to 1) that ends at `now`, in a box of `width` by `height`.
 *
 * Empty without samples: what is not known has no line.
 */
export function sparkline(
  samples: readonly ISample[],
  now: number,
  spanS: number,
  width: number,
  height: number
): string {
  const x = (at: number): number =>
    Math.round(10 * Math.min(width, Math.max(0, (1 - (now - at) / spanS) * width))) / 10;
  const y = (value: number): number => Math.round(10 * (1 - Math.min(1, Math.max(0, value))) * height) / 10;
  let path = '';
  for (const sample of samples) {
    path += path === '' ? `M${x(sample.at)} ${y(sample.value)}` : `H${x(sample.at)}V${y(sample.value)}`;
  }
  return path === '' ? '' : `${path}H${width}`;
}
