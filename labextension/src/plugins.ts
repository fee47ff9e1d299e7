/** The plugins of this extension; each can be disabled by itself. */

import { ILayoutRestorer } from '@jupyterlab/application';
import type { JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ICommandPalette } from '@jupyterlab/apputils';
import { INotebookTracker } from '@jupyterlab/notebook';
import type { NotebookPanel } from '@jupyterlab/notebook';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { IStatusBar } from '@jupyterlab/statusbar';
import { ITranslator } from '@jupyterlab/translation';

import { addCommands } from './commands';
import { gpuIcon } from './icon';
import { keepConnected } from './live';
import { NodeModel } from './model';
import { Notifier } from './notifications';
import { popupOf } from './popup';
import { INodeModel } from './tokens';
import { translation } from './translation';
import { ItemWidget, MarkerWidget, PanelWidget } from './widgets';
import { IWorkbench, PANEL_COMMAND, Workbench } from './workbench';

const PLUGIN = 'nls-jupyter:plugin';
const PANEL_ID = 'nls-jupyter-panel';

const model: JupyterFrontEndPlugin<INodeModel> = {
  id: 'nls-jupyter:model',
  description: 'Follows the status of the node and its GPUs.',
  autoStart: true,
  provides: INodeModel,
  optional: [ITranslator],
  activate: (app, translator: ITranslator | null): INodeModel => {
    const trans = translation(translator);
    const sentences = {
      connecting: trans.__('Asking for the GPUs of this node…'),
      lost: trans.__('Jupyter Server does not answer: what the GPUs do is not known until it does.'),
      unreadable: trans.__(
        'The server speaks another version of nls-jupyter: reload this page, or restart the server if that does not help.'
      ),
      absent: trans.__(
        'This Jupyter Server has not loaded nls-jupyter: restart it; `jupyter server extension list` says whether that is enabled.'
      ),
      forbidden: trans.__('Jupyter Server does not let you see the GPUs of this node.')
    };
    const node = new NodeModel(sentences);
    keepConnected(node, app.serviceManager.serverSettings, sentences);
    return node;
  }
};

const workbench: JupyterFrontEndPlugin<Workbench> = {
  id: PLUGIN,
  description: 'Settings and commands for the GPUs of the node.',
  autoStart: true,
  provides: IWorkbench,
  requires: [INodeModel],
  optional: [ITranslator, INotebookTracker, ISettingRegistry, ICommandPalette],
  activate: (
    app,
    node: INodeModel,
    translator: ITranslator | null,
    notebooks: INotebookTracker | null,
    registry: ISettingRegistry | null,
    palette: ICommandPalette | null
  ): Workbench => {
    const trans = translation(translator);
    const bench = new Workbench(app, node, trans, notebooks);
    addCommands(bench, palette);
    if (registry !== null) {
      bench.follow(registry, PLUGIN).catch((error: unknown) => {
        console.error('nls-jupyter: the settings could not be read, the defaults are used.', error);
      });
    }
    return bench;
  }
};

const panel: JupyterFrontEndPlugin<void> = {
  id: 'nls-jupyter:panel',
  description: 'A side panel with the GPUs of the node, who waits, and what happened.',
  autoStart: true,
  requires: [IWorkbench],
  optional: [ILayoutRestorer, ICommandPalette],
  activate: (app, bench: Workbench, restorer: ILayoutRestorer | null, palette: ICommandPalette | null) => {
    const widget = new PanelWidget(bench.following);
    widget.id = PANEL_ID;
    widget.title.icon = gpuIcon;
    widget.title.caption = bench.trans.__('GPUs');
    app.shell.add(widget, 'left', { rank: 650, type: 'GPUs' });
    restorer?.add(widget, PANEL_ID);
    app.commands.addCommand(PANEL_COMMAND, {
      label: bench.trans.__('Show the GPUs'),
      icon: gpuIcon,
      execute: () => {
        app.shell.activateById(PANEL_ID);
      }
    });
    palette?.addItem({ command: PANEL_COMMAND, category: bench.trans.__('GPU') });
  }
};

const statusItem: JupyterFrontEndPlugin<void> = {
  id: 'nls-jupyter:status-item',
  description: "The current notebook's GPU in the status bar.",
  autoStart: true,
  requires: [IWorkbench, IStatusBar],
  activate: (_, bench: Workbench, statusBar: IStatusBar) => {
    const item = new ItemWidget(bench.following, () => bench.current, popupOf(bench));
    statusBar.registerStatusItem('nls-jupyter:item', { item, align: 'left', rank: 3 });
  }
};

const notifications: JupyterFrontEndPlugin<void> = {
  id: 'nls-jupyter:notifications',
  description: 'Says when something happened to one of your notebooks on the GPU.',
  autoStart: true,
  requires: [IWorkbench],
  activate: (_, bench: Workbench) => {
    new Notifier(bench.model, {
      wanted: () => bench.settings.notifications,
      units: () => bench.settings.units,
      trans: bench.trans,
      hasPanel: () => bench.openPanel !== null,
      act: (action, id) => {
        const workload = bench.model.state?.workloads.get(id);
        if (action === 'open-panel' || workload === undefined) {
          bench.openPanel?.();
        } else if (action === 'go-to-notebook') {
          bench.goTo(workload);
        } else {
          void bench.orders.give(action, workload);
        }
      }
    });
  }
};

const marker: JupyterFrontEndPlugin<void> = {
  id: 'nls-jupyter:marker',
  description: "Where a notebook's GPU process is, in its toolbar.",
  autoStart: true,
  requires: [IWorkbench, INotebookTracker],
  activate: (_, bench: Workbench, notebooks: INotebookTracker) => {
    const add = (notebook: NotebookPanel): void => {
      const widget = new MarkerWidget(
        bench.following,
        () => bench.of(notebook.sessionContext),
        () => bench.settings.toolbarMarker
      );
      // Beside the kernel's name; a toolbar without one has it at its end.
      if (!notebook.toolbar.insertBefore('kernelName', 'nls-gpu', widget)) {
        notebook.toolbar.addItem('nls-gpu', widget);
      }
    };
    notebooks.forEach(add);
    notebooks.widgetAdded.connect((__, notebook) => {
      add(notebook);
    });
  }
};

export const plugins = [model, workbench, panel, statusItem, notifications, marker];
