/** What the plugins share: the notebook in front, its workload, the settings, and what views need. */

import type { JupyterFrontEnd } from '@jupyterlab/application';
import type { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';
import type { ISettingRegistry } from '@jupyterlab/settingregistry';
import { Token } from '@lumino/coreutils';

import { followInput } from './input';
import { KernelModes } from './modes';
import { Orders } from './orders';
import { Refresh } from './refresh';
import { DEFAULTS, readSettings } from './settings';
import type { ISettings } from './settings';
import type { ITranslate } from './statusText';
import type { INodeModel, IWorkload } from './tokens';
import type { IViewContext } from './views/context';
import type { IFollowing } from './widgets';

export const PANEL_COMMAND = 'nls-jupyter:open-panel';
/** Of this extension alone. */
export const IWorkbench = new Token<Workbench>('nls-jupyter:IWorkbench');

export class Workbench {
  readonly refresh: Refresh;
  readonly orders: Orders;
  readonly modes = new KernelModes();
  settings: ISettings = DEFAULTS;

  constructor(
    readonly app: JupyterFrontEnd,
    readonly model: INodeModel,
    readonly trans: ITranslate,
    readonly notebooks: INotebookTracker | null
  ) {
    this.refresh = new Refresh(model, () => this.settings.refreshSeconds * 1000);
    this.orders = new Orders(app.serviceManager.serverSettings, trans, () => this.settings.units);
    notebooks?.currentChanged.connect(() => {
      this.refresh.now();
    });
    notebooks?.widgetAdded.connect((_, panel) => {
      this._follow(panel);
    });
    notebooks?.forEach(panel => {
      this._follow(panel);
    });
    this.modes.changed.connect(() => {
      this.refresh.now();
    });
  }

  /** Follow the user's settings; without a registry the defaults stay. */
  async follow(registry: ISettingRegistry, plugin: string): Promise<void> {
    const settings = await registry.load(plugin);
    const read = (): void => {
      this.settings = readSettings(settings.composite);
      this.refresh.now();
    };
    settings.changed.connect(read);
    read();
  }

  /** What a widget needs to follow the model. */
  get following(): IFollowing {
    return { context: () => this.context, signals: [this.refresh.due] };
  }

  get context(): IViewContext {
    return {
      model: this.model,
      units: this.settings.units,
      trans: this.trans,
      act: (action, workload) => void this.orders.give(action, workload),
      goTo: workload => {
        this.goTo(workload);
      },
      openPanel: () => void this.app.commands.execute(PANEL_COMMAND)
    };
  }

  /** Of the notebook in front. */
  get current(): IWorkload | null {
    return this.of(this.notebooks?.currentWidget ?? null);
  }

  of(panel: NotebookPanel | null): IWorkload | null {
    return this.model.workloadOf(panel?.sessionContext.session?.kernel?.id);
  }

  /** Whether all cells of a notebook go to its GPU process; `null`: not known, or its kernel has no `%gpu`. */
  isAuto(panel: NotebookPanel | null): boolean | null {
    return this.modes.isAuto(panel?.sessionContext.session?.kernel?.id);
  }

  private _follow(panel: NotebookPanel): void {
    panel.sessionContext.kernelChanged.connect(() => {
      this.refresh.now();
    });
    this.modes.follow(panel.sessionContext);
    followInput(panel);
  }

  goTo(workload: IWorkload): void {
    if (workload.path !== null) {
      void this.app.commands.execute('docmanager:open', { path: workload.path });
    }
  }
}
