import {
  bytesText,
  clockText,
  durationText,
  entryText,
  gpuSentence,
  itemSentence,
  itemText,
  ordinal,
  reasonText,
  secondsSince,
  shortened,
  shortenedName,
  whereText,
  worthReading
} from '../src/statusText';
import { entry, known, trans, workload } from './samples';

const GIB = 2 ** 30;

it.each([
  [8 * GIB, 'binary', '8 GiB'],
  [1.5 * GIB, 'binary', '1.5 GiB'],
  [8 * GIB, 'decimal', '8.6 GB'],
  [0, 'binary', '0 B'],
  [null, 'binary', 'unknown']
] as const)('%s bytes in %s units are %s', (bytes, units, text) => {
  expect(bytesText(bytes, units, trans)).toBe(text);
});

it.each([
  [0.42, '0.4 s'],
  [3, '3 s'],
  [59.9, '59 s'],
  [60, '1 min'],
  [7500, '2 h 5 min']
])('%s seconds are %s', (seconds, text) => {
  expect(durationText(seconds, trans)).toBe(text);
});

it.each([
  [1, '1st'],
  [2, '2nd'],
  [3, '3rd'],
  [4, '4th'],
  [11, '11th'],
  [12, '12th'],
  [22, '22nd'],
  [113, '113th']
])('%s is %s', (number, text) => {
  expect(ordinal(number, trans)).toBe(text);
});

it('a time that is none, or far in the future, is no age', () => {
  expect(secondsSince('nonsense', 1000)).toBeNull();
  expect(secondsSince(null, 1000)).toBeNull();
  expect(secondsSince('2100-01-01T00:00:00Z', 1000)).toBeNull();
  expect(secondsSince('1970-01-01T00:16:41Z', 1000)).toBe(0);
});

it('a time has its day where that is not today, and nonsense is none', () => {
  const today = new Date();
  today.setHours(14, 5);
  const later = new Date(today);
  later.setDate(today.getDate() + 3);
  const clock = clockText(today.toISOString()) ?? '';
  expect(clock).toMatch(/^\d\d:05( PM)?$/);
  expect(clockText(later.toISOString())).toMatch(new RegExp(`\\b${later.getDate()}\\b.*${clock}$`));
  expect([clockText('nonsense'), clockText(null)]).toEqual([null, null]);
});

it('a cell that stands still is said, since when and for whom, before its place in the queue', () => {
  const since = new Date().toISOString();
  const stands = {
    phase: 'suspended',
    position: 1,
    frozen: { since, bytes: GIB, for: 'training-7' }
  } as const;
  expect(whereText(workload('w-alice', stands), trans)).toMatch(
    /^its cell stands still since .+, for training-7$/
  );
  const nobody = { ...stands, frozen: { ...stands.frozen, for: null } };
  expect(whereText(workload('w-alice', nobody), trans)).toMatch(/^its cell stands still since [^,]+$/);
  expect(whereText(workload('w-alice', { ...stands, phase: 'starting', moving: false }), trans)).not.toMatch(
    /still/
  );
});

it.each([
  ['frozen', 'stands still, GPU 1 is free'],
  ['thawed', 'goes on on GPU 1'],
  ['freeze_failed', 'could not be made to stand still'],
  ['thaw_failed', 'could not go on yet']
])('%s is told', (event, text) => {
  expect(entryText(entry({ event, from: 'GPU 1', to: 'GPU 1' }), 'binary', trans)).toContain(text);
});

describe('where a workload is', () => {
  it.each([
    [{ phase: 'running' }, 'GPU 0'],
    [{ phase: 'running', yields: true }, 'GPU 0, leaves after this cell'],
    [{ phase: 'starting', saved_bytes: 1 }, 'coming back to GPU 0'],
    [{ phase: 'starting', saved_bytes: 1, moving: true }, 'moving to GPU 0'],
    [{ phase: 'running', yields: true, executing: false }, 'GPU 0, leaves soon'],
    [{ phase: 'starting' }, 'starting on GPU 0'],
    [{ phase: 'suspending' }, 'leaving GPU 0'],
    [{ phase: 'suspended', executing: false }, 'suspended, resumes on the next cell'],
    [{ phase: 'queued', position: 2 }, 'waiting for a GPU, 2nd in queue'],
    [{ phase: 'running', gpus: ['GPU 0', 'GPU 1'] }, 'GPU 0 and GPU 1']
  ] as const)('%j is said as %s', (fields, text) => {
    expect(whereText(workload('w-alice', fields), trans)).toBe(text);
  });

  it('is told with figures only in the visible line', () => {
    const alice = workload('w-alice');
    expect(itemText(alice, 'binary', trans)).toBe('GPU 0: 6 / 8 / 16 GiB, executing');
    expect(itemText({ ...alice, memory_used_bytes: 9 * GIB }, 'binary', trans)).toBe(
      'GPU 0: 9 / 8 / 16 GiB, burst, executing'
    );
    expect(itemSentence(alice, 'binary', trans)).toBe(
      'GPU of this notebook: GPU 0; 6 GiB used, 8 GiB requested, limit 16 GiB. Opens details.'
    );
    const both = { ...alice, current: ['a', 'b'], gpus: ['GPU 0', 'GPU 1'], memory_used_bytes: 12 * GIB };
    expect(itemText(both, 'binary', trans)).toBe('GPU 0 and GPU 1: 12 / 16 / 32 GiB, executing');
    expect(itemSentence(both, 'binary', trans)).toBe(
      'GPU of this notebook: GPU 0 and GPU 1; 12 GiB used, 2 × 8 GiB requested, limit 2 × 16 GiB. Opens details.'
    );
  });
});

it('a reason tells since when the other one is there', () => {
  const bob = workload('w-bob');
  const now = Date.parse('2026-11-21T10:00:00Z') / 1000;
  expect(reasonText(bob, now, trans)).toBe('GPU 0 is held by training (training is there for 1 min)');
  expect(reasonText({ ...bob, cause: null }, now, trans)).toBe('GPU 0 is held by training');
});

it('a GPU is described with its health', () => {
  const broken = known().state.gpus.get('GPU-bbbbbbbb');
  expect(broken && gpuSentence(broken, [], 'binary', trans)).toBe(
    'GPU 1: unknown of 16 GiB used; held by nobody. Out of service: a process does not end.'
  );
});

it('a move is told with its reason, its time and what was kept', () => {
  const moved = known().state.history[1];
  expect(moved && entryText(moved, 'binary', trans)).toBe(
    'alice.ipynb moved from GPU 1 to GPU 0, 2 names missing: training needs GPU 1 (0.4 s, 1 GiB kept)'
  );
});

it('an event of a newer daemon is told by its own word', () => {
  expect(entryText(entry({ event: 'teleported', seconds: null }), 'binary', trans)).toContain('teleported');
});

it('a long text ends in an ellipsis, and no character is halved', () => {
  expect(shortened('abc', 3)).toBe('abc');
  expect(shortened('abcd', 3)).toBe('ab…');
  expect(shortened('😀😀😀😀', 3)).toBe('😀😀…');
});

it.each([
  ['short.ipynb', 20, 'short.ipynb'],
  ['a-very-long-name-copy-17.ipynb', 20, 'a-very-lon…-17.ipynb'],
  ['🙂'.repeat(30), 5, '🙂🙂…🙂🙂']
])('%s as a name of at most %s characters is %s', (name, length, text) => {
  expect(shortenedName(name, length)).toBe(text);
});

it('who gave a GPU back on purpose is not told to have lost its process', () => {
  const released = { workload: 'w-alice', reason: 'released by its user' };
  const history = [
    entry({ workload: 'w-alice', event: 'exited', reason: 'was killed' }),
    entry({ ...released, event: 'exited' }),
    entry({ ...released, event: 'released' })
  ];
  expect(worthReading(history)).toEqual([history[0], history[2]]);
  const others = entry({ ...released, workload: 'w-bob', event: 'released' });
  expect(worthReading([history[1] ?? others, others])).toHaveLength(2);
});

it('who only waited is not told to have given a GPU back', () => {
  const left = entry({ event: 'released', from: null, seconds: null, bytes: null });
  expect(entryText(left, 'binary', trans)).toContain('alice.ipynb asks for no GPU any more');
});

it('a command that has ended is not told to have lost anything', () => {
  const ended = { event: 'exited', from: 'GPU 0' };
  const told = (kind: string) => entryText(entry({ ...ended, kind }), 'binary', trans);
  expect(told('command')).toContain('alice.ipynb ended on GPU 0');
  expect(told('notebook')).toContain('lost its GPU process on GPU 0');
});

it('who is on its way reads where to', () => {
  const starting = workload('w-train', { gpus: ['GPU 1'] });
  expect(whereText(starting, trans)).toBe('starting on GPU 1');
});
