/** One workload, and what can be done with it. */

import React from 'react';

import { queueText } from '../queueText';
import { bytesText, clockText, eachText, reasonText, whereText } from '../statusText';
import type { ITranslate } from '../statusText';
import type { IWorkload } from '../tokens';
import { actionsFor, KEEP_MINUTES } from './context';
import type { IViewContext, WorkloadAction } from './context';

export function actionLabel(action: WorkloadAction, trans: ITranslate): string {
  switch (action) {
    case 'suspend':
      return trans.__('Suspend');
    case 'resume':
      return trans.__('Resume');
    case 'keep':
      return trans.__('Keep for %1 min', KEEP_MINUTES);
    case 'unkeep':
      return trans.__('Keep no longer');
    case 'interrupt':
      return trans.__('Interrupt');
    case 'set-request':
      return trans.__('Request…');
    case 'release':
      return trans.__('Release…');
  }
}

export function Actions(props: { context: IViewContext; workload: IWorkload }): React.ReactElement | null {
  const { context, workload } = props;
  const actions = actionsFor(context.model, workload);
  if (actions.length === 0) {
    return null;
  }
  return (
    <div className="nls-Actions" data-workload={workload.id}>
      {actions.map(action => (
        <button
          key={action}
          type="button"
          className="jp-mod-styled jp-mod-minimal nls-Button"
          // Several notebooks have the same buttons: which one it is must be heard, too.
          aria-label={`${actionLabel(action, context.trans)} ${workload.name}`}
          // A disabled one would lose the keyboard's focus.
          aria-disabled={context.isOrdered(workload)}
          onClick={() => {
            context.act(action, workload);
          }}
        >
          {actionLabel(action, context.trans)}
        </button>
      ))}
    </div>
  );
}

/** Its figures as a list of terms; in brief without what the reason says as well. */
export function Figures(props: {
  context: IViewContext;
  workload: IWorkload;
  brief?: boolean;
}): React.ReactElement {
  const { workload } = props;
  const { trans, units } = props.context;
  const rows: [string, string][] = [
    [trans.__('used'), bytesText(workload.memory_used_bytes, units, trans)],
    [trans.__('request'), eachText(workload.request_bytes, workload, units, trans)],
    [trans.__('limit'), eachText(workload.limit_bytes, workload, units, trans)]
  ];
  if (workload.phase === 'running' && props.brief !== true) {
    rows.push([trans.__('may use'), eachText(workload.allowance_bytes, workload, units, trans)]);
  }
  if (workload.saved_bytes) {
    rows.push([trans.__('saved'), bytesText(workload.saved_bytes, units, trans)]);
  }
  const kept = clockText(workload.keep_until);
  if (kept !== null) {
    rows.push([trans.__('kept until'), kept]);
  }
  return (
    <dl className="nls-Figures">
      {rows.map(([term, value]) => (
        <div key={term}>
          <dt>{term}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

/** A link to the notebook where this page can open it, else its name. */
function Name(props: { context: IViewContext; workload: IWorkload }): React.ReactElement {
  const { context, workload } = props;
  if (workload.path === null) {
    return (
      <span className="nls-Name" title={workload.name}>
        {workload.name}
      </span>
    );
  }
  return (
    <button
      type="button"
      className="nls-Name nls-Link"
      title={workload.path}
      onClick={() => {
        context.goTo(workload);
      }}
    >
      {workload.name}
    </button>
  );
}

export function WorkloadView(props: { context: IViewContext; workload: IWorkload }): React.ReactElement {
  const { context, workload } = props;
  const { trans, model } = context;
  const activity = workload.executing ? trans.__('executing') : trans.__('idle');
  const words = [
    workload.phase === 'running' && !workload.yields ? activity : whereText(workload, trans),
    workload.borrowed ? trans.__('borrowed') : null,
    workload.own ? null : trans.__("another user's"),
    queueText(workload, model, trans)
  ];
  return (
    <li className="nls-Workload" data-phase={workload.phase} data-own={workload.own}>
      <div className="nls-Workload-head">
        <Name context={context} workload={workload} />
        <span className="nls-Workload-state">{words.filter(word => word !== null).join(' · ')}</span>
      </div>
      <Figures context={context} workload={workload} brief />
      <div className="nls-Reason">{reasonText(workload, model.now(), trans)}</div>
      <Actions context={context} workload={workload} />
    </li>
  );
}

/** As many as are shown at once; one's own are always. */
const SHOWN_AT_ONCE = 10;

/** Several of them: the first ones, and the others on demand. */
export function WorkloadsView(props: {
  context: IViewContext;
  workloads: readonly IWorkload[];
}): React.ReactElement {
  const { context, workloads } = props;
  // Nobody is to open a list of one.
  const few = workloads.length <= SHOWN_AT_ONCE + 1;
  const isShown = (workload: IWorkload, place: number): boolean =>
    few || place < SHOWN_AT_ONCE || workload.own;
  const shown = workloads.filter(isShown);
  const others = workloads.filter((workload, place) => !isShown(workload, place));
  const list = (some: readonly IWorkload[]): React.ReactElement => (
    <ul className="nls-Workloads">
      {some.map(workload => (
        <WorkloadView key={workload.id} context={context} workload={workload} />
      ))}
    </ul>
  );
  return (
    <>
      {list(shown)}
      {others.length > 0 && (
        <details className="nls-More">
          <summary>{context.trans.__('%1 more', others.length)}</summary>
          {list(others)}
        </details>
      )}
    </>
  );
}
