/** The user's settings, read with their defaults. Pure. */

import type { Wanted } from './notices';
import type { Units } from './statusText';

export interface ISettings {
  readonly refreshSeconds: number;
  readonly notifications: Wanted;
  readonly units: Units;
  readonly toolbarMarker: boolean;
}

export const DEFAULTS: ISettings = {
  refreshSeconds: 1,
  notifications: 'all',
  units: 'binary',
  toolbarMarker: true
};

/** What JupyterLab validated against the schema; where it did not, the default. */
export function readSettings(composite: Readonly<Record<string, unknown>>): ISettings {
  const { refreshSeconds, notifications, units, toolbarMarker } = composite;
  return {
    refreshSeconds:
      typeof refreshSeconds === 'number' && refreshSeconds >= 1 ? refreshSeconds : DEFAULTS.refreshSeconds,
    notifications:
      notifications === 'important' || notifications === 'none' ? notifications : DEFAULTS.notifications,
    units: units === 'decimal' ? 'decimal' : DEFAULTS.units,
    toolbarMarker: toolbarMarker !== false
  };
}
