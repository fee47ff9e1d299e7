/** The commands, for the palette, menus and key bindings: of the notebook in front. */

import type { ICommandPalette } from '@jupyterlab/apputils';

import { actionsFor } from './views/context';
import type { WorkloadAction } from './views/context';
import type { Workbench } from './workbench';

export function addCommands(workbench: Workbench, palette: ICommandPalette | null): void {
  const { app, model, trans } = workbench;
  const labels: Record<WorkloadAction, string> = {
    suspend: trans.__("Suspend This Notebook's GPU Process"),
    resume: trans.__("Resume This Notebook's GPU Process"),
    'set-request': trans.__("Change This Notebook's GPU Request…"),
    release: trans.__("Release This Notebook's GPU…")
  };
  for (const [action, label] of Object.entries(labels) as [WorkloadAction, string][]) {
    const command = `nls-jupyter:${action}`;
    app.commands.addCommand(command, {
      label,
      isEnabled: () => {
        const workload = workbench.current;
        return workload !== null && actionsFor(model, workload).includes(action);
      },
      execute: async () => {
        const workload = workbench.current;
        if (workload !== null) {
          await workbench.orders.give(action, workload);
        }
      }
    });
    palette?.addItem({ command, category: trans.__('GPU') });
  }
  // What is possible changes with the notebook in front and with its workload.
  workbench.refresh.due.connect(() => {
    app.commands.notifyCommandChanged();
  });
}
