/** The side panel: the whole node. */

import React from 'react';

import { bytesText, durationText, entryText, nodeTrouble, secondsSince, worthReading } from '../statusText';
import type { IEntry, IWorkload } from '../tokens';
import type { IViewContext } from './context';
import { GpuView } from './gpu';
import { QueuesView } from './queues';
import { WorkloadsView } from './workload';

const HISTORY_SHOWN = 50;

function Legend(props: { context: IViewContext }): React.ReactElement {
  const { trans } = props.context;
  const words = {
    guaranteed: trans.__('guaranteed'),
    burst: trans.__('burst'),
    unplaced: trans.__('not placed'),
    free: trans.__('free')
  };
  return (
    <div className="nls-Legend" aria-hidden="true">
      {Object.entries(words).map(([kind, word]) => (
        <span key={kind}>
          <span className={`nls-Segment nls-mod-${kind}`} /> {word}
        </span>
      ))}
    </div>
  );
}

function Group(props: {
  title: string;
  context: IViewContext;
  workloads: readonly IWorkload[];
}): React.ReactElement | null {
  if (props.workloads.length === 0) {
    return null;
  }
  return (
    <section aria-label={props.title}>
      <h2>{props.title}</h2>
      <WorkloadsView context={props.context} workloads={props.workloads} />
    </section>
  );
}

function Happened(props: { context: IViewContext; entry: IEntry }): React.ReactElement {
  const { context, entry } = props;
  const { trans, units, model } = context;
  const ago = secondsSince(entry.time, model.now());
  const clock = ago === null ? entry.time : trans.__('%1 ago', durationText(Math.floor(ago), trans));
  return (
    <li className="nls-Entry" data-event={entry.event} data-own={entry.own}>
      <time dateTime={entry.time} title={entry.time}>
        {clock}
      </time>
      <span>
        {entryText(entry, units, trans)}
        {entry.missing.length > 0 && (
          <span className="nls-Missing">{trans.__('not kept: %1', entry.missing.join(', '))}</span>
        )}
        {entry.lost_cells.length > 0 && (
          <span className="nls-Missing">
            {trans.__('ran and are not in it: cells %1', entry.lost_cells.join(', '))}
          </span>
        )}
      </span>
    </li>
  );
}

/** Those without a GPU: first who waits, by place, then the others. */
function withoutGpu(workloads: Iterable<IWorkload>): { waiting: IWorkload[]; away: IWorkload[] } {
  const all = [...workloads].filter(workload => workload.current.length === 0);
  const place = (workload: IWorkload): number => workload.position ?? Number.MAX_SAFE_INTEGER;
  all.sort((a, b) => place(a) - place(b) || a.order - b.order);
  const waits = (workload: IWorkload): boolean => workload.position !== null || workload.phase === 'queued';
  return { waiting: all.filter(waits), away: all.filter(workload => !waits(workload)) };
}

export function PanelView(props: { context: IViewContext }): React.ReactElement {
  const { context } = props;
  const { trans, model, units } = context;
  const trouble = nodeTrouble(model, trans);
  const state = model.state;
  const gpus = [...(state?.gpus.values() ?? [])].sort((a, b) => a.index - b.index);
  const { waiting, away } = withoutGpu(state?.workloads.values() ?? []);
  const history = worthReading(model.history).slice(-HISTORY_SHOWN).reverse();
  const total = gpus.reduce((sum, gpu) => sum + gpu.memory_total_bytes, 0);
  return (
    <div className="nls-Panel" data-live={trouble === null}>
      {trouble !== null && (
        <div className="nls-Trouble" role="status">
          {trouble}
        </div>
      )}
      {state?.daemon.simulated === true && <div className="nls-Simulated">{trans.__('Simulated GPUs')}</div>}
      {trouble === null && state?.daemon.message && <div className="nls-Warning">{state.daemon.message}</div>}
      {gpus.length > 0 && (
        <section aria-label={trans.__('GPUs')}>
          <h2>
            {trans.__('GPUs')} <small>{bytesText(total, units, trans)}</small>
          </h2>
          <Legend context={context} />
          {gpus.map(gpu => (
            <GpuView key={gpu.uuid} context={context} gpu={gpu} />
          ))}
        </section>
      )}
      <Group title={trans.__('Waiting')} context={context} workloads={waiting} />
      <Group title={trans.__('Without a GPU')} context={context} workloads={away} />
      <QueuesView context={context} />
      {history.length > 0 && (
        <section aria-label={trans.__('What happened')}>
          <h2>{trans.__('What happened')}</h2>
          <ul className="nls-History">
            {history.map(entry => (
              <Happened key={`${entry.sequence} ${entry.time}`} context={context} entry={entry} />
            ))}
          </ul>
        </section>
      )}
    </div>
  );
}
