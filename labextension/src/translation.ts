/** JupyterLab's translations of this extension. */

import { nullTranslator } from '@jupyterlab/translation';
import type { ITranslator } from '@jupyterlab/translation';
import type { ITranslate } from './statusText';

/** What is filled in stays as it is: JupyterLab's own makes a percent sign of each `%% ` in it as well. */
export function translation(translator: ITranslator | null): ITranslate {
  const bundle = (translator ?? nullTranslator).load('nls_jupyter');
  const kept = (values: readonly (string | number)[]): (string | number)[] =>
    values.map(value => (typeof value === 'string' ? value.replace(/%/g, '%% ') : value));
  return {
    __: (message, ...values) => bundle.__(message, ...kept(values)),
    _n: (one, many, number, ...values) => bundle._n(one, many, number, ...kept(values))
  };
}
