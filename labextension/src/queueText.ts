/** What is said of a queue, in words. Pure. */

import type { ITranslate } from './statusText';
import type { INodeModel, IQueue, IQueuePool, IWorkload } from './tokens';

/** A number of GPUs: `1`, `0.75`; `∞`: unlimited. */
export function amountText(gpus: number | null): string {
  return gpus === null ? '∞' : String(Math.round(100 * gpus) / 100);
}

/** In whose quota a workload counts; `null` where no queues are configured. */
export function queueText(workload: IWorkload, model: INodeModel, trans: ITranslate): string | null {
  const configured = (model.state?.queues.size ?? 0) > 0;
  return configured && workload.queue !== null ? trans.__('queue %1', workload.queue) : null;
}

/** One sentence about what a queue has in a pool. */
export function queueSentence(queue: IQueue, pool: IQueuePool, trans: ITranslate): string {
  const owed =
    pool.quota === null
      ? trans.__('without a bound to its quota')
      : trans.__('quota %1', amountText(pool.quota));
  const most = pool.limit === null ? '' : trans.__(', at most %1', amountText(pool.limit));
  return trans.__(
    '%1 in pool %2: %3 GPUs used of %4 asked for, %5, fair share %6%7; %8 waiting.',
    queue.name,
    pool.pool,
    amountText(pool.used),
    amountText(pool.requested),
    owed,
    amountText(pool.fair_share),
    most,
    queue.waiting
  );
}
