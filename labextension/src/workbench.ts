/** What the plugins share: the notebook in front, its workload, the settings, and what views need. */

import type { JupyterFrontEnd } from '@jupyterlab/application';
import { Notification } from '@jupyterlab/apputils';
import type { ISessionContext } from '@jupyterlab/apputils';
import type { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';
import type { ISettingRegistry } from '@jupyterlab/settingregistry';
import { Token } from '@lumino/coreutils';
import type { Widget } from '@lumino/widgets';

import { followInput } from './input';
import { KernelModes } from './modes';
import { Orders } from './orders';
import { Refresh } from './refresh';
import { DEFAULTS, readSettings } from './settings';
import type { ISettings } from './settings';
import { shortenedName } from './statusText';
import type { ITranslate } from './statusText';
import type { INodeModel, IWorkload } from './tokens';
import type { IViewContext } from './views/context';
import type { IFollowing, INotebook } from './widgets';

export const PANEL_COMMAND = 'nls-jupyter:open-panel';
/** Of this extension alone. */
export const IWorkbench = new Token<Workbench>('nls-jupyter:IWorkbench');

export class Workbench {
  readonly refresh: Refresh;
  readonly orders: Orders;
  readonly modes = new KernelModes(kernel => this.model.workloadOf(kernel) !== null);
  settings: ISettings = DEFAULTS;

  constructor(
    readonly app: JupyterFrontEnd,
    readonly model: INodeModel,
    readonly trans: ITranslate,
    readonly notebooks: INotebookTracker | null
  ) {
    this.refresh = new Refresh(model, () => this.settings.refreshSeconds * 1000);
    this.orders = new Orders(app.serviceManager.serverSettings, trans, () => this.settings.units);
    const inFront = notebooks?.currentChanged ?? null;
    for (const changed of [inFront, app.shell.currentChanged ?? null]) {
      changed?.connect(() => {
        this.refresh.now();
      });
    }
    notebooks?.widgetAdded.connect((_, panel) => {
      this._follow(panel);
    });
    notebooks?.forEach(panel => {
      this._follow(panel);
    });
    for (const changed of [this.modes.changed, this.orders.changed]) {
      changed.connect(() => {
        this.refresh.now();
      });
    }
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
      isOrdered: workload => this.orders.isOrdered(workload),
      act: (action, workload) => void this.orders.give(action, workload),
      goTo: workload => {
        this.goTo(workload);
      },
      openPanel: this.openPanel
    };
  }

  /** Shows the panel; `null` where there is none, as its plugin can be disabled by itself. */
  get openPanel(): (() => void) | null {
    const { commands } = this.app;
    return commands.hasCommand(PANEL_COMMAND) ? () => void commands.execute(PANEL_COMMAND) : null;
  }

  /** Of the notebook or console in front; of neither, of the notebook that was there last. */
  get current(): INotebook {
    const session =
      sessionOf(this.app.shell.currentWidget) ?? sessionOf(this.notebooks?.currentWidget ?? null);
    return this.of(session);
  }

  of(session: ISessionContext | null): INotebook {
    const kernel = session?.session?.kernel?.id;
    const absent = session === null;
    return { workload: this.model.workloadOf(kernel), auto: this.modes.isAuto(kernel), absent };
  }

  private _follow(panel: NotebookPanel): void {
    panel.sessionContext.kernelChanged.connect(() => {
      this.refresh.now();
    });
    this.modes.follow(panel.sessionContext);
    followInput(panel);
  }

  /** What has its kernel here, in front; a notebook that is not open is opened. */
  goTo(workload: IWorkload): void {
    const { kernel_id: kernel, path } = workload;
    for (const widget of this.app.shell.widgets('main')) {
      if (kernel !== null && sessionOf(widget)?.session?.kernel?.id === kernel) {
        this.app.shell.activateById(widget.id);
        return;
      }
    }
    if (path !== null) {
      this.app.commands.execute('docmanager:open', { path }).catch(() => {
        const what = shortenedName(path, 60);
        Notification.error(this.trans.__('%1 cannot be opened here.', what), { autoClose: false });
      });
    }
  }
}

/** Of a notebook, a console, or whatever else has a kernel. */
function sessionOf(widget: Widget | null): ISessionContext | null {
  return (widget as { sessionContext?: ISessionContext } | null)?.sessionContext ?? null;
}
