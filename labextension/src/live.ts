/** Keeps the model connected while the page can be seen. */

import type { ServerConnection } from '@jupyterlab/services';

import { StatusConnection } from './connection';
import type { ISocket } from './connection';
import type { NodeModel } from './model';
import { openStream, refusal } from './restapi';

/** A tab that is hidden for longer costs the server nothing. */
const HIDDEN_MS = 60_000;

/** Connect `model` to the server of `settings`, for as long as the page lives. What it says without. */
export function keepConnected(
  model: NodeModel,
  settings: ServerConnection.ISettings,
  sentences: { connecting: string; absent: string; forbidden: string }
): void {
  const connection = new StatusConnection(
    {
      open: () => openStream(settings) as ISocket,
      later: (delayMs, action) => {
        const timer = setTimeout(action, delayMs);
        return () => {
          clearTimeout(timer);
        };
      },
      random: () => Math.random(),
      refusal: async () => {
        const why = await refusal(settings);
        return why === null ? null : sentences[why];
      }
    },
    model
  );
  let hiding: ReturnType<typeof setTimeout> | undefined;
  const look = (): void => {
    clearTimeout(hiding);
    if (document.hidden) {
      hiding = setTimeout(() => {
        connection.stop();
        model.lost(sentences.connecting); // nobody has failed to answer
      }, HIDDEN_MS);
    } else {
      connection.start();
    }
  };
  document.addEventListener('visibilitychange', look);
  window.addEventListener('offline', () => {
    connection.doubt();
  });
  connection.start();
  look();
}
