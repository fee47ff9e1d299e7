/** The queues of the node: what each is owed and has, and who waits in it. */

import React from 'react';

import { amountText, queueSentence } from '../queueText';
import type { IQueue, IQueuePool } from '../tokens';
import type { IViewContext } from './context';

/** How far a queue is below the topmost one. */
function depth(queue: IQueue, queues: ReadonlyMap<string, IQueue>): number {
  let steps = 0;
  let above = queue.parent === null ? undefined : queues.get(queue.parent);
  // What the server sends could go round in a circle.
  while (above !== undefined && steps < queues.size) {
    steps += 1;
    above = above.parent === null ? undefined : queues.get(above.parent);
  }
  return steps;
}

function Row(props: {
  context: IViewContext;
  queue: IQueue;
  pool: IQueuePool;
  indent: number;
  named: boolean;
}): React.ReactElement {
  const { queue, pool, named } = props;
  const { trans } = props.context;
  return (
    <tr title={queueSentence(queue, pool, trans)}>
      <th scope="row" style={{ paddingLeft: 8 * props.indent }}>
        <span className="nls-Queue-name">{queue.name}</span>
        {named && <span className="nls-Gpu-pool">{pool.pool}</span>}
      </th>
      <td data-over={pool.used > pool.fair_share}>{amountText(pool.used)}</td>
      <td>{amountText(pool.quota)}</td>
      <td>{amountText(pool.fair_share)}</td>
      <td>{queue.waiting === 0 ? '–' : queue.waiting}</td>
    </tr>
  );
}

/** A table with one row for each queue and pool; nothing where no queues are configured. */
export function QueuesView(props: { context: IViewContext }): React.ReactElement | null {
  const { context } = props;
  const { trans, model } = context;
  const queues = model.state?.queues ?? new Map<string, IQueue>();
  if (queues.size === 0) {
    return null;
  }
  const rows = [...queues.values()].sort((a, b) => a.order - b.order);
  const named = new Set(rows.flatMap(queue => queue.pools.map(pool => pool.pool))).size > 1;
  return (
    <section aria-label={trans.__('Queues')}>
      <h2>
        {trans.__('Queues')} <small>{trans.__('in GPUs')}</small>
      </h2>
      <table className="nls-Queues">
        <thead>
          <tr>
            <th scope="col">{trans.__('queue')}</th>
            <th scope="col">{trans.__('used')}</th>
            <th scope="col">{trans.__('quota')}</th>
            <th scope="col" title={trans.__('what it may use now, with its share of what nobody is owed')}>
              {trans.__('fair share')}
            </th>
            <th scope="col">{trans.__('waiting')}</th>
          </tr>
        </thead>
        <tbody>
          {rows.flatMap(queue =>
            queue.pools.map(pool => (
              <Row
                key={`${queue.name} ${pool.pool}`}
                context={context}
                queue={queue}
                pool={pool}
                indent={depth(queue, queues)}
                named={named}
              />
            ))
          )}
        </tbody>
      </table>
    </section>
  );
}
