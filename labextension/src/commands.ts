/** The commands, for the palette, menus and key bindings: of the notebook in front. */

import type { ICommandPalette, ISessionContext } from '@jupyterlab/apputils';

import { actionsFor, KEEP_MINUTES } from './views/context';
import type { WorkloadAction } from './views/context';
import type { Workbench } from './workbench';

export function addCommands(workbench: Workbench, palette: ICommandPalette | null): void {
  const { app, model, trans } = workbench;
  const labels: Record<Exclude<WorkloadAction, 'interrupt'>, string> = {
    suspend: trans.__("Suspend This Notebook's GPU Process"),
    resume: trans.__("Resume This Notebook's GPU Process"),
    keep: trans.__('Keep This Notebook on Its GPU for %1 Minutes', KEEP_MINUTES),
    unkeep: trans.__('Keep This Notebook on Its GPU No Longer'),
    'set-request': trans.__("Change This Notebook's GPU Request…"),
    release: trans.__("Release This Notebook's GPU…")
  };
  for (const [action, label] of Object.entries(labels) as [WorkloadAction, string][]) {
    const command = `nls-jupyter:${action}`;
    app.commands.addCommand(command, {
      label,
      isEnabled: () => {
        const { workload } = workbench.current;
        return workload !== null && actionsFor(model, workload).includes(action);
      },
      execute: async () => {
        const { workload } = workbench.current;
        if (workload !== null) {
          await workbench.orders.give(action, workload);
        }
      }
    });
    palette?.addItem({ command, category: trans.__('GPU') });
  }
  addAutoCommand(workbench, palette);
  // What is possible changes with the notebook in front and with its workload.
  workbench.refresh.due.connect(() => {
    app.commands.notifyCommandChanged();
  });
}

/** What `%gpu auto on` and `off` do; only where the kernel has told that it has `%gpu`. */
function addAutoCommand(workbench: Workbench, palette: ICommandPalette | null): void {
  const { app, trans, orders } = workbench;
  const command = 'nls-jupyter:toggle-auto';
  const session = (): ISessionContext | null => workbench.notebooks?.currentWidget?.sessionContext ?? null;
  const isAuto = (): boolean | null => workbench.of(session()).auto;
  app.commands.addCommand(command, {
    label: trans.__('Run Every Cell of This Notebook on the GPU'),
    isEnabled: () => isAuto() !== null,
    isToggleable: true,
    isToggled: () => isAuto() === true,
    execute: async () => {
      const kernel = session()?.session?.kernel;
      const auto = isAuto();
      if (kernel && auto !== null) {
        await orders.setAuto(kernel, !auto);
      }
    }
  });
  palette?.addItem({ command, category: trans.__('GPU') });
}
