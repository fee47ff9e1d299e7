/** When views draw again: at once for changes, at the user's pace for figures, and now and then as time passes. */

import { Signal } from '@lumino/signaling';
import type { ISignal } from '@lumino/signaling';

import type { IChange, INodeModel } from './tokens';

/** Ages and lines move on even where nothing happens. */
export const TICK_MS = 5000;

export class Refresh {
  private readonly _due = new Signal<this, void>(this);
  private readonly _tick: ReturnType<typeof setInterval>;
  private _later: ReturnType<typeof setTimeout> | null = null;
  private _drawnAt = 0;

  constructor(
    model: INodeModel,
    private readonly _everyMs: () => number
  ) {
    model.changed.connect(this._onChange, this);
    this._tick = setInterval(() => {
      this.now();
    }, TICK_MS);
  }

  get due(): ISignal<this, void> {
    return this._due;
  }

  /** Draw: a setting, or the notebook in front, has changed. */
  now(): void {
    if (this._later !== null) {
      clearTimeout(this._later);
      this._later = null;
    }
    this._drawnAt = Date.now();
    this._due.emit();
  }

  dispose(): void {
    clearInterval(this._tick);
    if (this._later !== null) {
      clearTimeout(this._later);
    }
    Signal.clearData(this);
  }

  private _onChange(_: INodeModel, change: IChange): void {
    const waitMs = this._drawnAt + this._everyMs() - Date.now();
    // A clock that was set back must not stop the drawing.
    if (!change.figuresOnly || waitMs <= 0 || waitMs > this._everyMs()) {
      this.now();
    } else {
      this._later ??= setTimeout(() => {
        this.now();
      }, waitMs);
    }
  }
}
