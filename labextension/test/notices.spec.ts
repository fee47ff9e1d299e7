import { NodeModel } from '../src/model';
import { leavingNotices, Notices, TEXT_LENGTH, waitingNotices, waitingOnes } from '../src/notices';
import { actionsFor } from '../src/views/context';
import { copy, entry, snapshot, trans, workload } from './samples';

function notices(): Notices {
  const result = new Notices();
  result.note([workload('w-alice'), workload('w-train')]);
  return result;
}

const mine = { workload: 'w-alice', name: 'alice.ipynb', reason: 'training needs GPU 1', reason_parts: null };

it('a move of my notebook is told with its reason', () => {
  const moved = entry({ ...mine, event: 'moved', from: 'GPU 1', to: 'GPU 0', seconds: 0.4 });
  const [notice] = notices().of([moved], 'all', 'binary', trans);
  expect(notice?.text).toBe('alice.ipynb moved from GPU 1 to GPU 0: training needs GPU 1 (0.4 s)');
  expect(notice?.stays).toBe(false);
});

it.each([
  ['of another user', { ...mine, workload: 'w-train', event: 'moved' }],
  ['about a GPU', { ...mine, workload: null, event: 'gpu_unhealthy' }],
  [
    'that the user asked for',
    { ...mine, event: 'suspended', reason: 'suspended by its user', reason_parts: null }
  ],
  ['of no interest', { ...mine, event: 'started' }]
] as const)('nothing is told %s', (_, fields) => {
  expect(notices().of([entry(fields)], 'all', 'binary', trans)).toEqual([]);
});

it('only what matters is told to those who want that, and nothing to those who want nothing', () => {
  const entries = [entry({ ...mine, event: 'moved' }), entry({ ...mine, event: 'evicted' })];
  expect(
    notices()
      .of(entries, 'important', 'binary', trans)
      .map(n => n.severity)
  ).toEqual(['warning']);
  expect(notices().of(entries, 'none', 'binary', trans)).toEqual([]);
});

it('coming back after the process was lost is told as a success', () => {
  const told = notices();
  told.of([entry({ ...mine, event: 'evicted' })], 'all', 'binary', trans);
  const [back] = told.of([entry({ ...mine, event: 'resumed', to: 'GPU 0' })], 'all', 'binary', trans);
  expect(back?.severity).toBe('success');
  expect(told.of([entry({ ...mine, event: 'resumed' })], 'all', 'binary', trans)).toEqual([]);
});

it('what did not come back is told, also to those who want to hear only what matters', () => {
  const lost = { ...mine, to: 'GPU 0', missing: ['handle', 'stream'] };
  const told = notices();
  told.of([entry({ ...mine, event: 'exited' })], 'all', 'binary', trans);
  const back = entry({ ...lost, event: 'resumed' });
  const [restored] = told.of([back], 'important', 'binary', trans);
  expect(restored?.text).toContain('alice.ipynb is back on GPU 0, 2 names missing: ');
  expect(restored).toMatchObject({ severity: 'warning', stays: true });
  const moved = entry({ ...lost, event: 'moved', from: 'GPU 1', missing: ['handle'] });
  expect(notices().of([moved], 'important', 'binary', trans)[0]?.text).toContain('one name missing');
});

it('who comes back as they were asked to, with everything, is no news; with less they are', () => {
  const resumed = { ...mine, event: 'resumed', to: 'GPU 0' };
  expect(notices().of([entry(resumed)], 'all', 'binary', trans)).toEqual([]);
  expect(notices().of([entry({ ...resumed, missing: ['handle'] })], 'all', 'binary', trans)).toHaveLength(1);
});

it('completed cells that are not in what came back are told to everybody who wants to hear anything', () => {
  const back = entry({ ...mine, event: 'resumed', to: 'GPU 0', lost_cells: ['[4]', '[5]', '[7]'] });
  const [told] = notices().of([back], 'important', 'binary', trans);
  expect(told).toMatchObject({ severity: 'warning', stays: true });
  expect(told?.text).toContain('alice.ipynb is back on GPU 0, without 3 cells from [4] to [7]: ');
  const one = entry({ ...mine, event: 'started', to: 'GPU 0', lost_cells: ['[4]'] });
  expect(notices().of([one], 'important', 'binary', trans)[0]?.text).toContain('without cell [4]');
});

it.each([
  ['before its cell ends, and can be kept', { executing: true, claimed: false }, ['keep', 'open-panel']],
  ['for a guarantee, and cannot be kept', { executing: true, claimed: true }, ['open-panel']],
  ['while idle, and can be kept', { executing: false, claimed: false }, ['keep', 'open-panel']],
  ['at once: there is nothing to be decided', { executing: false, claimed: true }, null]
] as const)('a notebook is told to be leaving %s', (_, fields, actions) => {
  const leaving = copy(snapshot) as unknown as { snapshot: { workloads: Record<string, object> } };
  const cause = { id: 'w-train', name: 'training', since: null };
  Object.assign(leaving.snapshot.workloads['w-alice'] ?? {}, { ...fields, yields: true, cause });
  const model = new NodeModel({ connecting: '', lost: '', unreadable: '' }, () => snapshot.time);
  model.received(leaving);
  const [notice] = leavingNotices(model, trans);
  expect(notice?.actions ?? null).toEqual(actions);
  if (notice !== undefined) {
    expect(notice.text).toContain('training needs the memory');
  }
});

it.each(['suspended by its user', 'it leaves once its cell has ended: suspended by its user'])(
  'who asked for it oneself is not told to be leaving, and can take it back: %s',
  reason => {
    const leaving = copy(snapshot) as unknown as { snapshot: { workloads: Record<string, object> } };
    const asked = {
      executing: true,
      claimed: false,
      yields: true,
      cause: null,
      reason
    };
    Object.assign(leaving.snapshot.workloads['w-alice'] ?? {}, asked);
    const model = new NodeModel({ connecting: '', lost: '', unreadable: '' }, () => snapshot.time);
    model.received(leaving);
    expect(leavingNotices(model, trans)).toEqual([]);
    const alice = model.state?.workloads.get('w-alice');
    expect(alice && actionsFor(model, alice)).toEqual(['resume', 'set-request', 'release']);
  }
);

it('a very long name leaves room for the reason, and the text is never longer than what JupyterLab shows', () => {
  const long = entry({ ...mine, event: 'evicted', name: 'x'.repeat(500) });
  const [notice] = notices().of([long], 'all', 'binary', trans);
  expect(notice?.text).toContain('training needs GPU 1');
  const longer = entry({ ...mine, event: 'evicted', reason: 'x'.repeat(500), reason_parts: null });
  expect(notices().of([longer], 'all', 'binary', trans)[0]?.text).toHaveLength(TEXT_LENGTH);
});

it('a cell that waits is told after a moment, with its place and its reason', () => {
  const sentences = { connecting: '', lost: '', unreadable: '' };
  let clock = snapshot.time;
  const model = new NodeModel(sentences, () => clock);
  const waiting = copy(snapshot) as unknown as { snapshot: { workloads: Record<string, object> } };
  const since = new Date(snapshot.time * 1000).toISOString();
  Object.assign(waiting.snapshot.workloads['w-bob'] ?? {}, { kernel_id: 'kernel-2', since });
  model.received(waiting);
  expect(waitingNotices(model, trans)).toEqual([]);
  expect(waitingOnes(model).map(one => one.id)).toEqual(['w-bob']);
  clock += 3;
  expect(waitingNotices(model, trans).map(notice => notice.text)).toEqual([
    'bob.ipynb: waiting for a GPU, 2nd in queue, GPU 0 is held by training'
  ]);
  expect(waitingNotices(model, trans)[0]?.actions).toEqual(['interrupt', 'set-request', 'open-panel']);
  Object.assign(waiting.snapshot.workloads['w-bob'] ?? {}, { cell_waits: false });
  model.received(waiting);
  clock += 3;
  expect(waitingNotices(model, trans)[0]?.actions).toEqual(['set-request', 'open-panel']);
});
