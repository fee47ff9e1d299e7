/** What is asked before an order that needs numbers or takes something away. */

import { Dialog, showDialog } from '@jupyterlab/apputils';
import { Widget } from '@lumino/widgets';

import { bytesText, shortenedName } from './statusText';
import type { ITranslate, Units } from './statusText';
import type { IWorkload } from './tokens';

/** What the user wrote; a field that was not changed is left out. */
export interface ISizes {
  readonly request?: string;
  readonly limit?: string;
}

/** What was refused, and why. */
export interface IRefusedSizes {
  readonly sizes: ISizes;
  readonly why: string;
}

/** Two fields for sizes; what was not changed is not sent. */
class SizesBody extends Widget implements Dialog.IBodyWidget<ISizes> {
  private readonly _fields: { request: HTMLInputElement; limit: HTMLInputElement };
  private readonly _before: { request: string; limit: string };

  constructor(workload: IWorkload, units: Units, trans: ITranslate, refused: IRefusedSizes | null) {
    super();
    this.addClass('nls-Sizes');
    this._before = {
      request: bytesText(workload.request_bytes, units, trans).replace(' ', ''),
      limit: bytesText(workload.limit_bytes, units, trans).replace(' ', '')
    };
    this._fields = {
      request: this._field('request', trans.__('Request, guaranteed on each GPU')),
      limit: this._field('limit', trans.__('Limit, the most it may use'))
    };
    const hint = document.createElement('p');
    hint.textContent = trans.__('A share of a GPU such as 0.5, or bytes such as 8GiB.');
    this.node.appendChild(hint);
    if (refused !== null) {
      this._again(refused);
    }
  }

  /** Nobody has to write twice what was right. */
  private _again(refused: IRefusedSizes): void {
    const { request, limit } = this._fields;
    request.value = refused.sizes.request ?? this._before.request;
    limit.value = refused.sizes.limit ?? this._before.limit;
    const why = document.createElement('p');
    why.className = 'nls-Refused';
    why.setAttribute('role', 'alert');
    why.textContent = refused.why;
    this.node.appendChild(why);
  }

  getValue(): ISizes {
    const { request, limit } = this._fields;
    return {
      ...(request.value.trim() === this._before.request ? {} : { request: request.value.trim() }),
      ...(limit.value.trim() === this._before.limit ? {} : { limit: limit.value.trim() })
    };
  }

  private _field(name: 'request' | 'limit', title: string): HTMLInputElement {
    const label = document.createElement('label');
    const input = document.createElement('input');
    input.className = 'jp-mod-styled';
    input.name = name;
    input.value = this._before[name];
    input.maxLength = 40;
    input.required = true;
    label.append(title, input);
    this.node.appendChild(label);
    return input;
  }
}

/** The sizes that the user wants instead, after what was `refused` before; `null`: nothing is to change. */
export async function askSizes(
  workload: IWorkload,
  units: Units,
  trans: ITranslate,
  refused: IRefusedSizes | null = null
): Promise<ISizes | null> {
  const result = await showDialog({
    title: trans.__('GPU memory of %1', shortenedName(workload.name, 60)),
    body: new SizesBody(workload, units, trans, refused),
    focusNodeSelector: 'input[name=request]',
    buttons: [
      Dialog.cancelButton({ label: trans.__('Cancel') }),
      Dialog.okButton({ label: trans.__('Ask for it') })
    ]
  });
  const sizes = result.value;
  return result.button.accept && sizes !== null && Object.keys(sizes).length > 0 ? sizes : null;
}

/** Whether the user really wants to give a GPU back. */
export async function confirmRelease(workload: IWorkload, trans: ITranslate): Promise<boolean> {
  const command = trans.__('%1 is stopped. What it has not written to a file is lost.', workload.name);
  const notebook = trans.__(
    'The GPU process of %1 ends and its place in the queue is given up. The notebook itself lives on; its saved variables come back with the next GPU cell.',
    workload.name
  );
  const result = await showDialog({
    title: trans.__('Release the GPU?'),
    body: workload.kind === 'command' ? command : notebook,
    buttons: [
      Dialog.cancelButton({ label: trans.__('Cancel') }),
      Dialog.warnButton({ label: trans.__('Release') })
    ]
  });
  return result.button.accept;
}
