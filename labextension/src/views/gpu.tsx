/** One GPU: its bar, its lines, and who is on it. */

import React from 'react';

import { segments, workloadsOn } from '../bars';
import type { ISegment } from '../bars';
import { SAMPLES_KEPT_S } from '../model';
import { sparkline } from '../sparkline';
import { bytesText, gpuSentence, unhealthyText } from '../statusText';
import type { IGpu, ISample } from '../tokens';
import type { IViewContext } from './context';
import { WorkloadsView } from './workload';

const LINE_WIDTH = 120;
const LINE_HEIGHT = 24;

function segmentText(segment: ISegment, context: IViewContext): string {
  const { trans, units } = context;
  const size = bytesText(segment.bytes, units, trans);
  const name = segment.workload?.name ?? '';
  switch (segment.kind) {
    case 'guaranteed':
      return trans.__('%1: %2 guaranteed', name, size);
    case 'burst':
      return trans.__('%1: %2 burst, may be taken back', name, size);
    case 'unplaced':
      return trans.__('%1 used by processes that nobody placed', size);
    case 'free':
      return trans.__('%1 free', size);
  }
}

export function Bar(props: {
  context: IViewContext;
  gpu: IGpu;
  pieces: ISegment[];
  label: string;
}): React.ReactElement {
  return (
    <div className="nls-Bar" role="img" aria-label={props.label}>
      {props.pieces.map(piece => (
        <div
          key={`${piece.kind} ${piece.workload?.id ?? ''}`}
          className={`nls-Segment nls-mod-${piece.kind}`}
          data-own={piece.workload?.own ?? false}
          style={{ flexGrow: piece.share }}
          title={segmentText(piece, props.context)}
        >
          <span>{piece.kind === 'guaranteed' ? piece.workload?.name : ''}</span>
        </div>
      ))}
    </div>
  );
}

function Line(props: {
  title: string;
  figure: string;
  samples: readonly ISample[];
  now: number;
}): React.ReactElement {
  const path = sparkline(props.samples, props.now, SAMPLES_KEPT_S, LINE_WIDTH, LINE_HEIGHT);
  return (
    <div className="nls-Line">
      <span className="nls-Line-title">{props.title}</span>
      {path !== '' && (
        <svg viewBox={`0 -1 ${LINE_WIDTH} ${LINE_HEIGHT + 2}`} preserveAspectRatio="none" aria-hidden="true">
          <path d={path} />
        </svg>
      )}
      <span className="nls-Line-figure">{props.figure}</span>
    </div>
  );
}

export function GpuView(props: { context: IViewContext; gpu: IGpu }): React.ReactElement {
  const { context, gpu } = props;
  const { trans, units, model } = context;
  const here = workloadsOn(gpu, model.state?.workloads.values() ?? []);
  const samples = model.samplesOf(gpu.uuid);
  const used = bytesText(gpu.memory_used_bytes, units, trans);
  const busy = gpu.utilisation === null ? trans.__('unknown') : `${Math.round(gpu.utilisation * 100)} %`;
  return (
    <section className="nls-Gpu" aria-label={`GPU ${gpu.index}`} data-healthy={gpu.healthy}>
      <h3 title={gpu.uuid}>
        GPU {gpu.index} <span className="nls-Gpu-model">{gpu.name}</span>
        {gpu.pool !== null && gpu.pool !== 'default' && (
          <span className="nls-Gpu-pool">{trans.__('pool %1', gpu.pool)}</span>
        )}
      </h3>
      {!gpu.healthy && (
        <div className="nls-Warning">⚠ {trans.__('Out of service: %1', unhealthyText(gpu, trans))}</div>
      )}
      <Bar
        context={context}
        gpu={gpu}
        pieces={segments(gpu, here)}
        label={gpuSentence(gpu, here, units, trans)}
      />
      <Line
        title={trans.__('memory')}
        figure={trans.__('%1 of %2', used, bytesText(gpu.memory_total_bytes, units, trans))}
        samples={samples.memory}
        now={model.now()}
      />
      <Line title={trans.__('busy')} figure={busy} samples={samples.utilisation} now={model.now()} />
      <WorkloadsView context={context} workloads={here} />
    </section>
  );
}
