/** The widgets around the views: they render again when something that they show has changed. */

import { ReactWidget } from '@jupyterlab/apputils';
import type { ISignal } from '@lumino/signaling';
import { Signal } from '@lumino/signaling';
import type { Message } from '@lumino/messaging';
import React from 'react';

import type { IWorkload } from './tokens';
import type { IViewContext } from './views/context';
import { ItemView, MarkerView, PopupView } from './views/item';
import { PanelView } from './views/panel';

/** Renders again after each of `signals`, but never while nobody can see it. */
abstract class FollowingWidget extends ReactWidget {
  constructor(signals: readonly ISignal<unknown, unknown>[]) {
    super();
    for (const signal of signals) {
      signal.connect(this._onChange, this);
    }
  }

  dispose(): void {
    Signal.clearData(this);
    super.dispose();
  }

  protected onAfterShow(message: Message): void {
    super.onAfterShow(message);
    this.update();
  }

  /** A button that is drawn no more leaves the keyboard with those beside it. */
  protected onUpdateRequest(message: Message): void {
    const held = document.activeElement;
    const workload = this.node.contains(held) ? held?.closest<HTMLElement>('[data-workload]') : null;
    super.onUpdateRequest(message);
    if (workload) {
      void this.renderPromise?.then(() => {
        if (held?.isConnected === false && document.activeElement === document.body) {
          const beside = `[data-workload="${CSS.escape(workload.dataset.workload ?? '')}"] button`;
          const next = this.node.querySelector<HTMLElement>(beside) ?? this.node.querySelector('button');
          next?.focus();
        }
      });
    }
  }

  private _onChange(): void {
    if (this.isVisible) {
      this.update();
    }
  }
}

export interface IFollowing {
  readonly context: () => IViewContext;
  readonly signals: readonly ISignal<unknown, unknown>[];
}

/** What is shown of one notebook; `auto` is `null` where its kernel has not told. */
export interface INotebook {
  readonly workload: IWorkload | null;
  readonly auto: boolean | null;
  /** There is none. */
  readonly absent?: boolean;
}

export class PanelWidget extends FollowingWidget {
  constructor(private readonly _following: IFollowing) {
    super(_following.signals);
    this.addClass('nls-PanelWidget');
  }

  render(): React.ReactElement {
    return <PanelView context={this._following.context()} />;
  }
}

export class PopupWidget extends FollowingWidget {
  constructor(
    private readonly _following: IFollowing,
    private readonly _notebook: () => INotebook,
    private readonly _close: () => void
  ) {
    super(_following.signals);
    this.addClass('nls-PopupWidget');
    this.node.addEventListener('keydown', event => {
      if (event.key === 'Escape') {
        this._close();
      }
    });
  }

  render(): React.ReactElement {
    return <PopupView context={this._following.context()} {...this._notebook()} />;
  }
}

/** In the status bar: of the notebook in front. */
export class ItemWidget extends FollowingWidget {
  constructor(
    private readonly _following: IFollowing,
    private readonly _notebook: () => INotebook,
    private readonly _open: (item: ItemWidget) => void
  ) {
    super(_following.signals);
  }

  render(): React.ReactElement {
    const open = (): void => {
      this._open(this);
    };
    const { workload, absent } = this._notebook();
    return (
      <ItemView
        context={this._following.context()}
        workload={workload}
        absent={absent ?? false}
        open={open}
      />
    );
  }
}

/** In the toolbar of one notebook. */
export class MarkerWidget extends FollowingWidget {
  constructor(
    private readonly _following: IFollowing,
    private readonly _notebook: () => INotebook,
    private readonly _wanted: () => boolean
  ) {
    super(_following.signals);
    this.addClass('nls-MarkerWidget');
  }

  render(): React.ReactElement | null {
    const context = this._following.context();
    return this._wanted() ? (
      <MarkerView context={context} {...this._notebook()} open={context.openPanel} />
    ) : null;
  }
}
