import React from 'react';
import { renderToStaticMarkup } from 'react-dom/server';

import { segments, workloadsOn } from '../src/bars';
import { NodeModel } from '../src/model';
import { DEFAULTS, readSettings } from '../src/settings';
import { sparkline } from '../src/sparkline';
import { actionsFor } from '../src/views/context';
import type { IViewContext } from '../src/views/context';
import { ItemView, MarkerView, PopupView } from '../src/views/item';
import { PanelView } from '../src/views/panel';
import { copy, delta, known, snapshot, trans, workload } from './samples';

const HTML = '<img src=x onerror="alert(1)">';

type Scene = IViewContext & { readonly model: NodeModel };

function context(message: unknown = snapshot): Scene {
  const model = new NodeModel({ connecting: 'connecting', lost: 'lost', unreadable: 'unreadable' });
  model.received(message);
  const nothing = (): undefined => undefined;
  return {
    model,
    units: 'binary',
    trans,
    isOrdered: () => false,
    act: nothing,
    goTo: nothing,
    openPanel: nothing
  };
}

function changed(change: (state: typeof snapshot.snapshot, message: typeof snapshot) => void): unknown {
  const message = copy(snapshot);
  change(message.snapshot, message);
  return message;
}

const panel = (message?: unknown): string => renderToStaticMarkup(<PanelView context={context(message)} />);

it('offers the panel only where there is one: its plugin can be disabled by itself', () => {
  const props = { workload: workload('w-alice'), auto: false };
  const shown = (scene: Scene): string[] => [
    renderToStaticMarkup(<PopupView context={scene} {...props} />),
    renderToStaticMarkup(<MarkerView context={scene} {...props} open={scene.openPanel} />)
  ];
  const [popup, marker] = shown(context());
  expect(popup).toContain('All GPUs of this node');
  expect(marker).not.toContain('disabled');
  const [alone, inert] = shown({ ...context(), openPanel: null });
  expect(alone).not.toContain('All GPUs of this node');
  expect(inert).toContain('disabled');
});

describe('the panel', () => {
  it('says in words what each bar shows', () => {
    expect(panel()).toContain(
      'aria-label="GPU 0: 6 GiB of 16 GiB used, 50 % busy; held by alice.ipynb, training."'
    );
    expect(panel()).toContain('Out of service: a process does not end');
    expect(panel()).toContain('Simulated GPUs');
  });

  it('lists who waits with the reason, and what happened with its figures', () => {
    expect(panel()).toContain('waiting for a GPU, 2nd in queue');
    expect(panel()).toContain('GPU 0 is held by training');
    expect(panel()).toContain('moved from GPU 1 to GPU 0, 2 names missing: training needs GPU 1');
    expect(panel()).toContain('not kept: handle, stream');
  });

  it('shows HTML in names as text', () => {
    const shown = panel(
      changed(state => {
        state.workloads['w-alice'].name = state.workloads['w-bob'].reason = HTML;
        (state.history[0] as { name: string }).name = HTML;
      })
    );
    expect(shown).not.toContain('<img');
    expect(shown).toContain('&lt;img src=x');
  });

  it('shows nothing of before when the daemon is gone, and why', () => {
    const shown = panel(
      changed(state => {
        state.daemon = { ...state.daemon, reachable: false, message: 'No daemon is running.' as never };
        state.gpus = {} as never;
        state.workloads = {} as never;
      })
    );
    expect(shown).toContain('No daemon is running.');
    expect(shown).toContain('data-live="false"');
    expect(shown).not.toContain('nls-Bar');
  });

  it('opens no list of two hundred, but shows the first ones and all of its user', () => {
    const message = copy(snapshot) as unknown as { snapshot: { workloads: Record<string, object> } };
    for (let i = 0; i < 200; i++) {
      const id = `w-${i}`;
      const own = i === 150;
      message.snapshot.workloads[id] = { ...snapshot.snapshot.workloads['w-bob'], id, own, order: 10 + i };
    }
    const [shown, more] = panel(message).split('<details');
    expect(more).toContain('190 more');
    // Of those who wait bob, nine others and one's own; on the GPU alice and training.
    expect(shown?.match(/<li class="nls-Workload"/g)).toHaveLength(13);
    expect(more?.match(/<li class="nls-Workload"/g)).toHaveLength(190);
  });

  it('draws two hundred workloads', () => {
    const message = copy(snapshot) as unknown as { snapshot: { workloads: Record<string, object> } };
    for (let i = 0; i < 200; i++) {
      const id = `w-${i}`;
      message.snapshot.workloads[id] = {
        ...snapshot.snapshot.workloads['w-bob'],
        id,
        name: 'x'.repeat(1000)
      };
    }
    expect(panel(message).match(/<li class="nls-Workload"/g)).toHaveLength(203);
  });
});

describe('what can be done', () => {
  const may = (write: boolean, execute: boolean, administrator: boolean): IViewContext =>
    context(
      changed((state, message) => {
        message.may = { write, execute };
        state.daemon.administrator = administrator;
      })
    );

  it('is nothing for who may only read', () => {
    expect(actionsFor(may(false, false, false).model, workload('w-alice'))).toEqual([]);
  });

  it('is everything for its user, as its phase allows', () => {
    const { model } = may(true, false, false);
    expect(actionsFor(model, workload('w-alice'))).toEqual(['suspend', 'keep', 'set-request', 'release']);
    const kept = workload('w-alice', { keep_until: '2026-11-21T10:10:00+00:00' });
    expect(actionsFor(model, kept)).toEqual(['suspend', 'unkeep', 'set-request', 'release']);
    const waiting = workload('w-bob', { kernel_id: 'kernel-2' });
    expect(actionsFor(model, waiting)).toEqual(['interrupt', 'set-request', 'release']);
    expect(actionsFor(model, workload('w-bob'))).toEqual(['set-request', 'release']);
    const interrupted = workload('w-bob', { kernel_id: 'kernel-2', cell_waits: false });
    expect(actionsFor(model, interrupted)).toEqual(['set-request', 'release']);
    const suspended = workload('w-alice', { phase: 'suspended' });
    expect(actionsFor(model, suspended)).toEqual(['resume', 'set-request', 'release']);
  });

  it("on others' workloads is for administrators only, here and at the daemon", () => {
    const training = workload('w-train');
    expect(actionsFor(may(true, true, false).model, training)).toEqual([]);
    expect(actionsFor(may(true, false, true).model, training)).toEqual([]);
    expect(actionsFor(may(true, true, true).model, training)).toEqual(['set-request', 'release']);
  });
});

it('what was ordered for a workload is on its way: nothing else can be meanwhile', () => {
  const shown = renderToStaticMarkup(
    <PanelView context={{ ...context(), isOrdered: one => one.name === 'alice.ipynb' }} />
  );
  expect(shown).toMatch(/aria-label="Suspend alice.ipynb" aria-disabled="true"/);
  expect(shown).toMatch(/aria-label="Release… bob.ipynb" aria-disabled="false"/);
});

describe('the status item', () => {
  const item = (id: string | null, message?: unknown): string =>
    renderToStaticMarkup(
      <ItemView
        context={context(message)}
        workload={id === null ? null : workload(id)}
        open={() => undefined}
      />
    );

  it('is a real button, and announces where the notebook is without figures', () => {
    const shown = item('w-alice');
    expect(shown).toMatch(/<button type="button"/);
    expect(shown).toContain('aria-live="polite">GPU 0<');
    expect(shown).toContain('GPU 0: 6 / 8 / 16 GiB, executing');
  });

  it('says to who only hears it that there is no GPU any more', () => {
    expect(item(null)).toContain('aria-live="polite">no GPU<');
  });

  it('does not say of a node without GPUs that they are not known', () => {
    const shown = item(
      null,
      changed(state => {
        state.gpus = {} as never;
        state.workloads = {} as never;
        state.daemon.message = 'There is no NVIDIA driver.' as never;
      })
    );
    expect(shown).toContain('> no GPU<');
    expect(shown).toContain('title="There is no NVIDIA driver."');
  });

  it('names no notebook where none is open', () => {
    const nobody = { workload: null, auto: null, absent: true };
    const shown = [
      <ItemView key="1" context={context()} {...nobody} open={() => undefined} />,
      <PopupView key="2" context={context()} {...nobody} />
    ].map(element => renderToStaticMarkup(element));
    expect(shown[0]).toContain('title="No notebook is open. Opens the GPUs of this node."');
    expect(shown[1]).toContain('No notebook is open.');
    expect(shown.join()).not.toContain('his notebook has');
  });

  it('says that nothing is known when that is so', () => {
    const lost = context();
    lost.model.lost();
    const shown = renderToStaticMarkup(<ItemView context={lost} workload={null} open={() => undefined} />);
    expect(shown).toContain('GPU: unknown');
  });

  it('is nothing in the toolbar of a notebook without a GPU', () => {
    expect(MarkerView({ context: context(), workload: null, auto: null, open: () => undefined })).toBeNull();
  });

  it.each([
    [null, false, 'GPU off', 'that begin with %%gpu'],
    [null, true, 'auto: GPU off', 'Every cell'],
    ['w-alice', false, 'GPU 0', 'that begin with %%gpu'],
    ['w-alice', true, 'auto: GPU 0', 'Every cell']
  ] as const)('with %s and auto mode %s is %s in the toolbar', (id, auto, text, sentence) => {
    const shown = renderToStaticMarkup(
      <MarkerView
        context={context()}
        workload={id === null ? null : workload(id)}
        auto={auto}
        open={() => undefined}
      />
    );
    expect(shown).toContain(`</svg> ${text}<`);
    expect(shown).toContain(sentence);
  });

  it.each([
    [null, 'This notebook has no GPU: run a cell that begins with %%gpu.'],
    [false, 'This notebook has no GPU: run a cell that begins with %%gpu.'],
    [true, 'This notebook has no GPU: its next cell asks for one.']
  ])('explains in its popup how to get a GPU, with auto mode %s', (auto, sentence) => {
    const shown = renderToStaticMarkup(<PopupView context={context()} workload={null} auto={auto} />);
    expect(shown).toContain(sentence);
  });
});

describe('a bar', () => {
  it('sums up to one, whatever is used', () => {
    const { gpus, workloads } = known().state;
    for (const gpu of gpus.values()) {
      for (const factor of [0, 1, 5]) {
        const here = workloadsOn(gpu, workloads.values()).map(one => ({
          ...one,
          memory_used_bytes: one.memory_used_bytes * factor
        }));
        const sum = segments(gpu, here).reduce((all, piece) => all + piece.share, 0);
        expect(sum).toBeCloseTo(1);
      }
    }
  });

  it('has no burst of an elastic command that has more GPUs than its fewest', () => {
    const { gpus } = known().state;
    const used = {
      phase: 'running',
      current: [...gpus.keys()],
      memory_used_bytes: gpus.size * 2 ** 30
    } as const;
    const elastic = workload('w-alice', { ...used, request_bytes: 2 ** 30 });
    for (const gpu of gpus.values()) {
      expect(segments(gpu, [elastic]).map(piece => piece.kind)).not.toContain('burst');
    }
  });
});

describe('a sparkline', () => {
  it('is empty without samples, and stays in its box', () => {
    expect(sparkline([], 100, 60, 120, 24)).toBe('');
    const samples = [
      { at: 0, value: 2 },
      { at: 70, value: 0.5 },
      { at: 200, value: -1 }
    ];
    expect(sparkline(samples, 100, 60, 120, 24)).toBe('M0 0H60V12H120V24H120');
  });
});

it('settings that are none are the defaults', () => {
  expect(readSettings({ refreshSeconds: 'soon', units: 7, notifications: {} })).toEqual(DEFAULTS);
  expect(readSettings({ notifications: 'none', toolbarMarker: false }).toolbarMarker).toBe(false);
});

it('a page that applies a difference shows it', () => {
  const after = context();
  after.model.received(delta);
  expect(renderToStaticMarkup(<PanelView context={after} />)).not.toContain('starting on GPU 0');
});
