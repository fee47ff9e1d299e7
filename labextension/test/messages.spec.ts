import { HISTORY_KEPT, understand } from '../src/messages';
import { Malformed } from '../src/validation';
import { copy, delta, known, snapshot } from './samples';

describe('a snapshot', () => {
  it('is read as the server wrote it', () => {
    const { state, permissions, version } = known();
    expect(version).toBe(1);
    expect(permissions).toEqual({ write: true, execute: true });
    expect([...state.gpus.keys()]).toEqual(Object.keys(snapshot.snapshot.gpus));
    expect(state.workloads.get('w-alice')).toEqual(snapshot.snapshot.workloads['w-alice']);
    expect(state.gpus.get('GPU-bbbbbbbb')?.memory_used_bytes).toBeNull();
  });

  it.each([
    ['no object', []],
    ['nothing', null],
    ['text', 'hello'],
    ['no version', { after: null, time: 1, snapshot: {} }],
    ['a version that is no number', { ...snapshot, version: 'one' }],
    ['a phase of another version', withWorkload({ phase: 'dreaming' })],
    ['bytes below zero', withWorkload({ memory_used_bytes: -1 })],
    ['bytes as text', withWorkload({ limit_bytes: '8GiB' })],
    ['a name that is an object', withWorkload({ name: { toString: 1 } })],
    ['a list of GPUs that is none', withWorkload({ gpus: 'GPU 0' })]
  ])('with %s is refused', (_, message) => {
    expect(() => understand(null, message)).toThrow(Malformed);
  });
});

function withWorkload(fields: object): unknown {
  const changed = copy(snapshot) as { snapshot: { workloads: Record<string, object> } };
  Object.assign(changed.snapshot.workloads['w-alice'] ?? {}, fields);
  return changed;
}

describe('a difference', () => {
  it('changes what it names and leaves the rest as it was', () => {
    const before = known();
    const after = understand(before, delta);
    expect(after.version).toBe(2);
    expect(after.state.workloads.get('w-alice')).toMatchObject({ phase: 'suspending', name: 'alice.ipynb' });
    expect(after.state.workloads.has('w-train')).toBe(false);
    expect(after.state.workloads.get('w-bob')).toBe(before.state.workloads.get('w-bob'));
    expect(after.state.gpus.get('GPU-aaaaaaaa')?.utilisation).toBe(0.9);
    expect(after.state.history.map(entry => entry.event)).toEqual(['started', 'moved', 'queued', 'released']);
    expect(before.state.workloads.size).toBe(3);
  });

  it('that does not follow what is known is refused', () => {
    expect(() => understand(known(), { ...delta, after: 7 })).toThrow(Malformed);
    expect(() => understand(null, delta)).toThrow(Malformed);
  });

  it('that brings half a workload is refused', () => {
    const half = { ...delta, workloads: { 'w-new': { name: 'new' } } };
    expect(() => understand(known(), half)).toThrow('workloads.w-new.id should be a text');
  });

  it('tells figures from changes', () => {
    const figures = { version: 2, after: 1, time: 1, workloads: { 'w-alice': { memory_used_bytes: 1 } } };
    expect(understand(known(), figures).figuresOnly).toBe(true);
    expect(understand(known(), delta).figuresOnly).toBe(false);
    expect(understand(known(), { version: 1, after: 1, time: 1 }).figuresOnly).toBe(true);
  });

  it('with a history that begins anew replaces the old one', () => {
    const anew = { ...delta, history_anew: true };
    expect(understand(known(), anew).state.history).toHaveLength(1);
    expect(understand(known(), { ...anew, history: [] }).state.history).toEqual([]);
    expect(understand(known(), delta).state.history).toHaveLength(4);
  });

  it('never makes the history grow for ever', () => {
    const many = Array.from({ length: 1000 }, (_, i) => ({ ...delta.history[0], sequence: 10 + i }));
    expect(understand(known(), { ...delta, history: many }).state.history).toHaveLength(HISTORY_KEPT);
  });

  it('with ids that are names of JavaScript does no harm', () => {
    const alice = snapshot.snapshot.workloads['w-alice'];
    const strange = JSON.parse(
      `{"version":2,"after":1,"time":1,"workloads":{"__proto__":${JSON.stringify(alice)}}}`
    ) as unknown;
    const state = understand(known(), strange).state;
    expect(state.workloads.get('__proto__')?.name).toBe('alice.ipynb');
    expect(({} as Record<string, unknown>).name).toBeUndefined();
  });
});
