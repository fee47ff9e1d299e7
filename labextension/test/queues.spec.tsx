import React from 'react';
import { renderToStaticMarkup } from 'react-dom/server';

import { understand } from '../src/messages';
import { NodeModel } from '../src/model';
import { amountText, queueSentence, queueText } from '../src/queueText';
import type { IViewContext } from '../src/views/context';
import { PopupView } from '../src/views/item';
import { PanelView } from '../src/views/panel';
import { copy, known, snapshot, trans, workload } from './samples';

type State = typeof snapshot.snapshot;

function context(change: (state: State) => void = () => undefined): IViewContext {
  const message = copy(snapshot);
  change(message.snapshot);
  const model = new NodeModel({ connecting: 'connecting', lost: 'lost', unreadable: 'unreadable' });
  expect(model.received(message)).toBe(true);
  const nothing = (): undefined => undefined;
  const isOrdered = (): boolean => false;
  return { model, units: 'binary', trans, isOrdered, act: nothing, goTo: nothing, openPanel: nothing };
}

const panel = (change?: (state: State) => void): string =>
  renderToStaticMarkup(<PanelView context={context(change)} />);

/** What the table has, row by row. */
function rows(markup: string): string[] {
  const table = /<tbody>(.*)<\/tbody>/.exec(markup)?.[1] ?? '';
  return table.split('</tr>').flatMap(row => row.replace(/<[^>]*>/g, ' ').trim() || []);
}

it('each queue is shown with what it has and is owed, below its parent', () => {
  const shown = panel();
  expect(rows(shown).map(row => row.replace(/ +/g, ' '))).toEqual([
    'research 0.5 1 1.5 1',
    'vision 0.5 0.5 0.75 –',
    'default 0.5 ∞ 0.5 –'
  ]);
  expect(shown).toContain('padding-left:8px');
  expect(shown).not.toContain('nls-Gpu-pool');
});

it('pools are named where there are several', () => {
  const shown = panel(state => {
    const [first] = state.queues.research.pools;
    state.queues.research.pools.push({ ...copy(first), pool: 'interactive' } as never);
  });
  expect(rows(shown)).toHaveLength(4);
  expect(shown).toContain('<span class="nls-Gpu-pool">interactive</span>');
});

it('a workload says whose quota it counts in, in its row and in the popup', () => {
  expect(panel()).toContain('executing · queue vision');
  const popup = renderToStaticMarkup(
    <PopupView context={context()} workload={workload('w-alice')} auto={null} />
  );
  expect(popup).toContain('GPU 0 · queue vision');
});

it('where none are configured, nothing is said of queues', () => {
  const without = context(state => {
    state.queues = {} as never;
  });
  expect(renderToStaticMarkup(<PanelView context={without} />)).not.toContain('ueue vision');
  expect(renderToStaticMarkup(<PanelView context={without} />)).not.toContain('nls-Queues');
  expect(queueText(workload('w-alice'), without.model, trans)).toBeNull();
});

it('a server that says nothing of queues is understood', () => {
  const message = copy(snapshot) as { snapshot: Partial<State> };
  delete message.snapshot.queues;
  for (const one of Object.values(message.snapshot.workloads ?? {})) {
    delete (one as { queue?: string }).queue;
  }
  expect(understand(null, message).state.queues.size).toBe(0);
});

it('a change of a queue is drawn at once, and a queue that has gone is gone', () => {
  const before = known();
  const head = { version: 2, after: 1, time: 0 };
  const fewer = understand(before, { ...head, queues: { research: { waiting: 0 }, default: null } });
  expect(fewer.figuresOnly).toBe(false);
  expect([...fewer.state.queues.values()].map(queue => [queue.name, queue.waiting])).toEqual([
    ['research', 0],
    ['vision', 0]
  ]);
});

it('queues that go round in a circle are drawn nevertheless', () => {
  const shown = panel(state => {
    state.queues.research.parent = 'vision' as never;
  });
  expect(rows(shown)).toHaveLength(3);
});

it('names are text', () => {
  const shown = panel(state => {
    state.queues.vision.name = state.workloads['w-alice'].queue = '<img src=x>';
  });
  expect(shown).not.toContain('<img');
});

it.each([
  [null, '∞'],
  [1, '1'],
  [0.666667, '0.67']
])('%s GPUs are %s', (gpus, text) => {
  expect(amountText(gpus)).toBe(text);
});

it('is a sentence for people who hear it', () => {
  const [vision, all] = ['vision', 'default'].map(name => known().state.queues.get(name));
  const [first, last] = [vision?.pools[0], all?.pools[0]];
  if (vision === undefined || all === undefined || first === undefined || last === undefined) {
    throw new Error('the samples have no such queues');
  }
  expect(queueSentence(vision, first, trans)).toBe(
    'vision in pool default: 0.5 GPUs used of 0.5 asked for, quota 0.5, fair share 0.75, at most 1; 0 waiting.'
  );
  expect(queueSentence(all, last, trans)).toContain('without a bound to its quota');
});
