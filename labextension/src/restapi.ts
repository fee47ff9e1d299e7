/** The server's interface: where the stream is, and the orders. */

import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';

import { readWorkloadId } from './validation';

/** A refusal; the message is the server's one sentence, which says what to do. */
export class Refused extends Error {
  constructor(
    message: string,
    readonly status: number
  ) {
    super(message);
  }
}

function url(settings: ServerConnection.ISettings, ...parts: string[]): string {
  return URLExt.join(settings.baseUrl, 'nls', 'api', ...parts.map(encodeURIComponent));
}

async function order(
  settings: ServerConnection.ISettings,
  method: string,
  body: object | null,
  ...parts: string[]
): Promise<unknown> {
  const request = { method, ...(body === null ? {} : { body: JSON.stringify(body) }) };
  const response = await ServerConnection.makeRequest(url(settings, ...parts), request, settings);
  const answer: unknown = await response.json().catch(() => null);
  if (!response.ok) {
    throw new Refused(sentence(answer) ?? `${response.status} ${response.statusText}`, response.status);
  }
  return answer;
}

function sentence(answer: unknown): string | null {
  const fields = typeof answer === 'object' && answer !== null ? (answer as Record<string, unknown>) : {};
  return typeof fields.message === 'string' && fields.message !== '' ? fields.message : null;
}

/** Suspend or resume a workload; it is under way when this resolves. Rejects with Refused. */
export async function act(
  settings: ServerConnection.ISettings,
  id: string,
  action: 'suspend' | 'resume'
): Promise<void> {
  readWorkloadId(await order(settings, 'POST', {}, 'workloads', id, action));
}

/** What of a workload can be changed: sizes as people write them, and for how many seconds its user keeps it. */
export interface IWishes {
  readonly request?: string;
  readonly limit?: string;
  readonly keep_s?: number;
}

/** Ask for another request or limit, or keep it. Rejects with Refused. */
export async function change(
  settings: ServerConnection.ISettings,
  id: string,
  wishes: IWishes
): Promise<void> {
  readWorkloadId(await order(settings, 'PATCH', wishes, 'workloads', id));
}

/** Give the Gpu of a workload back; that is under way when this resolves. Rejects with Refused. */
export async function release(settings: ServerConnection.ISettings, id: string): Promise<void> {
  await order(settings, 'DELETE', null, 'workloads', id);
}

/** Whether the server has this interface, and lets its user read; `null` also where it does not answer. */
export async function refusal(settings: ServerConnection.ISettings): Promise<'absent' | 'forbidden' | null> {
  const asked = ServerConnection.makeRequest(url(settings, 'status'), {}, settings);
  const status = await asked.then(
    response => response.status,
    () => 0
  );
  return status === 404 ? 'absent' : status === 403 ? 'forbidden' : null;
}

/** A WebSocket of the stream of states. */
export function openStream(settings: ServerConnection.ISettings): WebSocket {
  const address = URLExt.join(settings.wsUrl, 'nls', 'api', 'stream');
  const token =
    settings.appendToken && settings.token !== '' ? `?token=${encodeURIComponent(settings.token)}` : '';
  return new settings.WebSocket(address + token);
}
