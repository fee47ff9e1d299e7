/** The current notebook in one line: in the status bar and in its toolbar, and the popup behind it. */

import React from 'react';

import { queueText } from '../queueText';
import {
  itemSentence,
  itemText,
  nodeTrouble,
  reasonText,
  shortened,
  whereText,
  whyText
} from '../statusText';
import type { IWorkload } from '../tokens';
import type { IViewContext } from './context';
import { Actions, Figures } from './workload';

/** As an argument: JupyterLab's translation makes one percent sign of two in a text. */
const CELL_MAGIC = '%%gpu';

/** Shapes differ, not only colours. Drawn, since not every font has such signs. */
const SHAPES = {
  none: <circle cx="6" cy="6" r="4.5" fill="none" />,
  away: <circle cx="6" cy="6" r="4.5" fill="none" strokeDasharray="2 2" />,
  idle: (
    <>
      <circle cx="6" cy="6" r="4.5" fill="none" />
      <path d="M6 1.5a4.5 4.5 0 0 0 0 9z" />
    </>
  ),
  executing: <circle cx="6" cy="6" r="4.5" />,
  waiting: <path d="M2 1.5h8L2 10.5h8z" fill="none" strokeLinejoin="round" />,
  failed: <path d="M2 2l8 8M10 2l-8 8" fill="none" />
};

function shape(workload: IWorkload | null): keyof typeof SHAPES {
  if (workload === null) {
    return 'none';
  }
  if (workload.position !== null) {
    return 'waiting';
  }
  if (workload.phase === 'running') {
    return workload.executing ? 'executing' : 'idle';
  }
  return workload.phase === 'failed' ? 'failed' : 'away';
}

function Sign(props: { workload: IWorkload | null }): React.ReactElement {
  return (
    <svg className="nls-Sign" viewBox="0 0 12 12" aria-hidden="true">
      {SHAPES[shape(props.workload)]}
    </svg>
  );
}

interface IItemProps {
  readonly context: IViewContext;
  readonly workload: IWorkload | null;
  /** There is no notebook of which anything could be said. */
  readonly absent?: boolean;
  readonly open: () => void;
}

function short(props: IItemProps): [text: string, sentence: string] {
  const { workload, absent } = props;
  const { trans, units, model } = props.context;
  const trouble = nodeTrouble(model, trans);
  if (trouble !== null) {
    return [model.state?.daemon.reachable === true ? trans.__('no GPU') : trans.__('GPU: unknown'), trouble];
  }
  if (workload === null) {
    const sentence =
      absent === true
        ? trans.__('No notebook is open. Opens the GPUs of this node.')
        : trans.__('This notebook has no GPU. Opens the GPUs of this node.');
    return [trans.__('no GPU'), sentence];
  }
  return [itemText(workload, units, trans), itemSentence(workload, units, trans)];
}

/** What a screen reader is told: where the notebook is, whenever that changes, and never a figure. */
function announcement(context: IViewContext, workload: IWorkload | null): string {
  const { trans, model } = context;
  const trouble = nodeTrouble(model, trans);
  return trouble ?? (workload === null ? trans.__('no GPU') : whereText(workload, trans));
}

export function ItemView(props: IItemProps): React.ReactElement {
  const [text, sentence] = short(props);
  return (
    <div className="nls-Item" data-phase={props.workload?.phase ?? 'none'}>
      <button
        type="button"
        className="nls-Item-button"
        aria-label={sentence}
        title={sentence}
        aria-haspopup="dialog"
        onClick={props.open}
      >
        <Sign workload={props.workload} /> {shortened(text, 60)}
      </button>
      <span className="nls-Hidden" aria-live="polite">
        {announcement(props.context, props.workload)}
      </span>
    </div>
  );
}

/** Off, on or auto, in the notebook's toolbar: no figures, and nothing at all where there is nothing to be had. */
export function MarkerView(
  props: Omit<IItemProps, 'open'> & { auto: boolean | null; open: (() => void) | null }
): React.ReactElement | null {
  const { context, workload, auto } = props;
  const { model, trans } = context;
  if ((workload === null && auto === null) || nodeTrouble(model, trans) !== null) {
    return null;
  }
  const where = workload === null ? trans.__('GPU off') : whereText(workload, trans);
  const cells =
    auto === true
      ? trans.__('Every cell of this notebook runs on the GPU.')
      : trans.__('Cells of this notebook that begin with %1 run on the GPU.', CELL_MAGIC);
  const text = auto === true ? trans.__('auto: %1', where) : where;
  return (
    <button
      type="button"
      className="nls-Marker"
      title={[cells, workload === null ? '' : whyText(workload, trans)].join(' ').trim()}
      aria-label={`${text}. ${cells}`}
      disabled={props.open === null}
      onClick={props.open ?? undefined}
    >
      <Sign workload={workload} /> {shortened(text, 36)}
    </button>
  );
}

export function PopupView(props: {
  context: IViewContext;
  workload: IWorkload | null;
  auto: boolean | null;
  absent?: boolean;
}): React.ReactElement {
  const { context, workload, auto, absent } = props;
  const { trans, model } = context;
  const trouble = nodeTrouble(model, trans);
  return (
    <div className="nls-Popup" role="dialog" aria-label={trans.__('GPU of this notebook')}>
      {trouble !== null && <div className="nls-Trouble">{trouble}</div>}
      {trouble === null && absent === true && <div>{trans.__('No notebook is open.')}</div>}
      {trouble === null && workload === null && absent !== true && (
        <div>
          {auto === true
            ? trans.__('This notebook has no GPU: its next cell asks for one.')
            : trans.__('This notebook has no GPU: run a cell that begins with %1.', CELL_MAGIC)}
        </div>
      )}
      {workload !== null && (
        <>
          <div className="nls-Name" title={workload.name}>
            {workload.name}
          </div>
          <div>
            {[whereText(workload, trans), queueText(workload, model, trans)]
              .filter(word => word !== null)
              .join(' · ')}
          </div>
          <Figures context={context} workload={workload} />
          <div className="nls-Reason">{reasonText(workload, model.now(), trans)}</div>
          <Actions context={context} workload={workload} />
        </>
      )}
      {context.openPanel !== null && (
        <button type="button" className="jp-mod-styled jp-mod-minimal nls-Button" onClick={context.openPanel}>
          {trans.__('All GPUs of this node')}
        </button>
      )}
    </div>
  );
}
